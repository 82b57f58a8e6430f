"""A real sshd on loopback, whose nodes are names of one machine: what the login shell of each does, a test says."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

DEADLINE_S = 60
_SERVER = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/me.pub
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
AcceptEnv GPUDIAG_NODE
MaxStartups 200:30:400
ForceCommand {folder}/login
"""
_LOGIN = """#!/bin/sh
if [ -f {folder}/nodes/"$GPUDIAG_NODE" ]; then . {folder}/nodes/"$GPUDIAG_NODE"; fi
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
_NODE = """
Host {name}
    HostName 127.0.0.1
    Port {port}
    SetEnv GPUDIAG_NODE={name}
    IdentityFile {folder}/{key}
    HostKeyAlias {alias}
"""
_ALL = """
Host *
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
"""


class Sshd:
    """A server and the configuration of a user who can reach ``n1`` to ``n40`` on it.

    ``gone`` has no server, ``silent`` one that never says a word, ``stranger`` another host key, and ``locked`` lets
    nobody in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "ssh_config"
        self.log = folder / "log"
        (folder / "nodes").mkdir()
        for name in ("host", "me", "other"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
                check=True,
                timeout=DEADLINE_S,
            )
        key = (folder / "host.pub").read_text().split()
        (folder / "known_hosts").write_text(f"gpudiag-test {key[0]} {key[1]}\n")
        (folder / "login").write_text(_LOGIN.format(folder=folder))
        (folder / "login").chmod(0o755)
        self._sockets = [socket.socket() for _ in range(3)]
        for each in self._sockets:
            each.bind(("127.0.0.1", 0))
        self.port, self.silent_port, self.gone_port = (each.getsockname()[1] for each in self._sockets)
        self._sockets[0].close()
        self._sockets[1].listen(64)  # and the last one is bound, and does not listen
        self._write_config()

    def _write_config(self) -> None:
        def block(name: str, port: int, key: str = "me", alias: str = "gpudiag-test") -> str:
            return _NODE.format(name=name, port=port, key=key, alias=alias, folder=self.folder)

        blocks = [block(f"n{number}", self.port) for number in range(1, 41)]
        blocks += [block("gone", self.gone_port), block("silent", self.silent_port)]
        blocks += [block("locked", self.port, key="other"), block("stranger", self.port, alias="another")]
        self.config.write_text("".join(blocks) + _ALL.format(folder=self.folder))

    def on_node(self, name: str, script: str) -> None:
        """Let the login shell of a node run this before its command."""
        (self.folder / "nodes" / name).write_text(script + "\n")

    @property
    def options(self) -> tuple[str, ...]:
        """The words of ``gpudiag fleet check`` for this server."""
        return ("--engine", "ssh", "--engine-option", f"-F{self.config}")

    @contextlib.contextmanager
    def running(self) -> Iterator[Sshd]:
        """Start the server, and end it."""
        program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if program is None:
            raise FileNotFoundError("sshd was not found (Debian: openssh-server): the tests of ssh need it")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        (self.folder / "sshd_config").write_text(_SERVER.format(folder=self.folder, port=self.port))
        server = subprocess.Popen(
            [program, "-D", "-f", str(self.folder / "sshd_config"), "-E", str(self.log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait(server)
            yield self
        finally:
            server.terminate()
            server.wait(DEADLINE_S)
            for each in self._sockets:
                each.close()

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            text = self.log.read_text() if self.log.exists() else ""
            assert server.poll() is None, f"sshd ended: {text}"
            assert time.monotonic() < until, f"sshd did not answer: {text}"
            time.sleep(0.02)
