"""A real MQTT broker on loopback, in a thread: it can go away, and come back with or without what it kept."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from amqtt.broker import Broker
from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from wukongs.cli.ports import free_ports


class Doorkeeper(BaseAuthPlugin):
    """Lets in whoever has the right password."""

    async def authenticate(self, *, session: Session) -> bool:
        return session.username is None or (session.username, session.password) == ("us", "right")


class TopicKeeper(BaseTopicPlugin):
    """Lets nobody read topics that begin with "secret"."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        return topic is None or not topic.startswith("secret")


def free_port() -> int:
    """Return a port that nobody has, and that the system gives to nobody: neither to others until somebody listens
    there, nor to those who try to connect meanwhile."""
    (port,) = free_ports(1)
    return port


@contextmanager
def broker(port: int, **listener: Any) -> Iterator[Broker]:
    """Run a broker until the block ends; it closes all connections then, and forgets everything."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(made: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(made(), loop).result(20)

    async def make() -> Broker:
        plugins: dict[str, Any] = {f"{__name__}.{one}": {} for one in ("Doorkeeper", "TopicKeeper")}
        config = {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}", **listener}},
            "plugins": plugins,
        }
        return Broker(config)  # type: ignore[arg-type]

    async def end() -> None:
        await shut_down()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=3)

    async def shut_down() -> None:
        with suppress(asyncio.TimeoutError):  # it waits for ever, now and then, for a message that nobody confirms
            await asyncio.wait_for(made.shutdown(), 3)
            return
        for server in made._servers.values():
            await server.close_instance()
        for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
            transport.abort()

    made = call(make)
    call(made.start)
    try:
        yield made
    finally:
        call(end)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def mosquitto(port: int) -> Iterator[None]:
    """Run a Mosquitto until the block ends. amqtt drops what was not confirmed on a connection; this one sends it
    again, as the protocol says."""
    program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    if program is None:
        pytest.skip("needs mosquitto (Debian: apt install mosquitto)")
    with subprocess.Popen([program, "-p", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(6000):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.01)
            yield
        finally:
            process.terminate()


@contextmanager
def publisher(port: int) -> Iterator[Callable[[str, str, int], None]]:
    """Return what publishes a text to a topic with a QoS, and waits until the broker has it."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()

    def publish(topic: str, text: str, qos: int = 1) -> None:
        client.publish(topic, text.encode(), qos).wait_for_publish(20)

    try:
        yield publish
    finally:
        client.disconnect()
        client.loop_stop()
