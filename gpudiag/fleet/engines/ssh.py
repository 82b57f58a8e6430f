"""The engine ``ssh``: the user's own ``ssh``, with what ``~/.ssh/config`` says of each node."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from gpudiag.errors import UsageError
from gpudiag.fleet.engines import EngineOptions, Roster, Rule
from gpudiag.fleet.hosts import Host, Hosts, read_hosts
from gpudiag.fleet.launcher import Done, launch
from gpudiag.model.fleet import NoReport

LOGIN_S = 60.0
"""The most seconds until the command begins. ``ConnectTimeout`` ends before the login, which hangs, for instance, where
the home folder is on a file server that does not answer."""
PAUSE_S = 2.0
"""Before the second attempt to connect; half of it at least, so that a jump host does not get all of them at once."""
ANSWER_S = 30.0
"""How long ssh may take to say what its configuration is."""
_HOST_NAME = re.compile(rb"(?m)^hostname (\S+)$")
SIGN = b"gpudiag-fleet-begins\n"
"""Written by the far shell before the command: 255 is the status of ssh for whatever went wrong, and the texts beside
it may be in any language. What was printed before it, such as by a start-up file, is not of the command."""

_OF_ITS_OWN = ("-oControlMaster=no", "-oControlPath=none")
"""A shared connection stays open when its clients end, and so would the session that the check is tied to. They come
before the user's options, because inventories often have ``-o ControlMaster=auto``."""
_OPTIONS = (
    "BatchMode=yes",  # nobody is there to type a password
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",  # the second ssh with the user's LocalForward would fail
    "RemoteCommand=none",
)
_TIED = (
    # The command ends when the session of sshd has ended, as after Ctrl-C or a kill -9 of ssh: sshd itself would leave
    # it running. /proc shows a parent of another user, too, such as dropbear's; where it shows none, none is watched.
    'exec 3<&0; "$@" <&3 3<&- & c=$!; exec 3<&-; '
    '([ -e "/proc/$PPID" ] || exit; while [ -e "/proc/$PPID" ]; do sleep 2; done; kill "$c") '
    "</dev/null >/dev/null 2>&1 & w=$!; "
    # 255 is what ssh ends with itself.
    'wait "$c"; s=$?; kill "$w" 2>/dev/null; [ "$s" -ne 255 ] || s=254; exit "$s"'
)


class Engine:
    """Runs the command on each node by ``ssh``."""

    reasons: Sequence[Rule] = ()
    most_at_once = 64
    """A connection takes 0.09 s of the collector's processor, and all begin at once: 64 take 6 s of one processor,
    which leaves the last of them some of the 10 s of ``ConnectTimeout``."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options.options
        self._file = None if options.hosts is None else Path(options.hosts)
        self._hosts: Hosts | None = None

    async def roster(self, names: tuple[str, ...]) -> Roster:
        """Return the nodes of ``--hosts`` that have these names, or are in these groups of an inventory."""
        if self._file is None and not names:
            raise UsageError("which nodes? Give their names, such as node[001-100], or --hosts FILE.")
        if shutil.which("ssh") is None:
            raise UsageError("ssh was not found: install the OpenSSH client (Debian: openssh-client).")
        hosts = await self._read()
        roster = Roster(names, {}, {}) if hosts is None else hosts.roster(names)
        usable = [name for name in roster.nodes if name not in roster.not_usable]
        if usable:
            await self._try_options(usable[0])
        return roster

    async def addresses(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the host that ssh connects to for each node, as its configuration says."""
        gate = asyncio.Semaphore(self.most_at_once)

        async def address(node: str) -> str:
            program, *words = self._ssh(node)
            async with gate:
                done = await launch((program, "-G", *words), ANSWER_S)
            match = _HOST_NAME.search(done.output)
            return match[1].decode() if match else node

        return dict(zip(nodes, await asyncio.gather(*map(address, nodes)), strict=True))

    @contextlib.asynccontextmanager
    async def opened(self, nodes: Sequence[str], deadline_s: float) -> AsyncIterator[None]:
        """Read ``--hosts`` again if this run goes on with an earlier one."""
        del nodes, deadline_s
        await self._read()
        yield

    async def run(self, node: str, argv: Sequence[str], deadline_s: float, given: bytes | None = None) -> Done:
        """Run a command on a node; connect once more if that failed before the command began."""
        if self._hosts is not None and (fault := self._hosts.fault(node)):  # since the plan, or as it was then
            return Done(None, b"", fault, 0.0, reason=NoReport.NOT_USABLE)
        command = (*self._ssh(node), remote_command(argv))
        done = await _attempt(command, deadline_s, given)
        if done.reason is NoReport.UNREACHABLE and done.seconds < min(LOGIN_S, deadline_s):
            await asyncio.sleep(PAUSE_S * random.uniform(0.5, 1))  # noqa: S311  # no secret
            done = await _attempt(command, deadline_s, given)
        return done

    def _ssh(self, node: str) -> tuple[str, ...]:
        """Return the words before the command; of an option that is there twice, ssh takes the first."""
        host = Host(node) if self._hosts is None else self._hosts.by_name[node]
        ours = (word for option in _OPTIONS for word in ("-o", option))
        return ("ssh", *_OF_ITS_OWN, "-T", "-a", "-x", *self._options, *host.options, *ours, "--", host.address)

    async def _read(self) -> Hosts | None:
        if self._hosts is None and self._file is not None:
            self._hosts = await read_hosts(self._file)
        return self._hosts

    async def _try_options(self, node: str) -> None:
        """Raise :class:`UsageError` if ssh does not take its options, or cannot read its configuration."""
        command = self._ssh(node)
        done = await launch((command[0], "-G", *command[1:]), ANSWER_S)
        if done.status != 0:
            raise UsageError(f"ssh cannot be used as it is configured: {done.first_error}")


def remote_command(argv: Sequence[str]) -> str:
    """Return a command as one word for the far shell, which may be that of csh or fish: no newline and no ``!``."""
    return f"echo {SIGN.decode().strip()}; exec sh -c {shlex.quote(_TIED)} sh {shlex.join(argv)}"


async def _attempt(command: Sequence[str], deadline_s: float, given: bytes | None) -> Done:
    """Run ssh once, and return what the command itself wrote, or why it did not begin."""
    limit_s = min(LOGIN_S, deadline_s)
    done = await launch(command, deadline_s, given=given, sign=(SIGN, limit_s))
    before, sign, output = done.output.partition(SIGN)
    if sign:
        lost = done.status == 255 and done.reason is None and not done.timed_out
        return dataclasses.replace(done, output=output, reason=NoReport.LOST if lost else done.reason)
    if done.status is None or done.reason is not None:  # ssh could not be started, or what it wrote was too much
        return done
    errors = done.errors
    reason = NoReport.UNREACHABLE
    if done.seconds >= limit_s:
        errors += f"\nssh has not begun the command within {limit_s:g} s"
    elif done.status != 255 or _REFUSED.line_in(dataclasses.replace(done, output=before)) is not None:
        reason = NoReport.REFUSED
    return dataclasses.replace(done, errors=errors, reason=reason, timed_out=False)


_REFUSED = Rule(
    NoReport.REFUSED,
    r"permission denied|host key verification failed|remote host identification has changed|access denied"
    r"|too many authentication failures|no supported authentication|unable to negotiate|administratively prohibited"
    r"|not permitted to log ?in|account (?:has expired|is locked|is currently not available)|password (?:has )?expired",
    status=255,
)
"""What ssh or the node says if it does not let this user in. It only decides between two reasons before the command."""
