"""The wire: codec, sockets, trust."""
