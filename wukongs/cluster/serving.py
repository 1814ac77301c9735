"""ServedEngine: an embedded engine that clients and pipelines of other processes use: a node that has no others."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from wukongs.cluster.node_config import NodeConfig
from wukongs.durable.life import life_of
from wukongs.engine import Engine
from wukongs.remote.service import Service
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.descriptors import make_room
from wukongs.wire.trust import Trust


class ServedEngine:
    """address: where it listens. Raises what opening a data folder and binding an address raise."""

    def __init__(self, config: NodeConfig) -> None:
        self._failure: BaseException | None = None
        self._tell: Callable[[BaseException], object] = lambda _: None
        files = config.trust
        self._trust = Trust(files.secret_key_file, files.allowed_clients, files.tokens_file)
        make_room()
        self.engine = Engine(config.data_dir, settings=config.settings)
        try:
            life = secrets.token_hex(8) if config.data_dir is None else life_of(config.data_dir)
            self._service = Service(self.engine, config.settings, life=lambda: life)
            try:
                self._socket = ClientSocket(
                    config.listen_clients,
                    self._service.handlers,
                    self.engine._ingest_handler(),
                    trust=self._trust.read(),
                    quick=self._service.quick,
                    failed=self._fail,
                )
            except BaseException:
                self._service.close()
                raise
        except BaseException:
            self.engine.close()
            raise
        self.address = self._socket.address
        self.listens: Mapping[str, str] = {"clients": self.address}

    def on_failure(self, tell: Callable[[BaseException], object]) -> None:
        """Let somebody be told when clients cannot be answered any more. An engine that has failed tells each asker
        itself."""
        self._tell = tell
        if self._failure is not None:
            tell(self._failure)

    def reload_trust(self) -> None:
        """Read the files of keys and tokens again. Raises SettingsError (one that will not do: the old ones stay)."""
        self._socket.use(self._trust.read())

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._tell(error)

    def close(self) -> None:
        """End clients' sessions, close the socket and the engine; may be called again."""
        self._service.close()
        self._socket.close()
        self.engine.close()
