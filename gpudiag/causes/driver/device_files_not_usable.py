"""a device file exists and cannot be opened for a reason that `ls -l` hardly shows

Permissions are one reason of several. In a user namespace, as rootless containers have, the owner of the host's files
has no number ("nobody", 65534), and the user's further groups count only if the runtime keeps them. Root without the
capability CAP_DAC_OVERRIDE is bound by permissions like everybody. On a file system that is mounted with nodev, no
device can be opened at all. And what a copy, or a bind mount of a missing file, leaves in /dev is no device.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT
from gpudiag.causes.shared.refusals import Refusals, Refuser
from gpudiag.fix import Action, Kind, Where, configure, run, run_container, start
from gpudiag.knowledge.sandboxes import BY_NAME

CAUSE = Cause(
    title="{files} cannot be opened: {why}",
    fix=BY_NAME["podman"].unmapped,
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=("host.driver.no_access", "host.driver.nvml_failed"),
)
_WHY = {
    Refuser.USER_NAMESPACE: "their owner has no number in this user namespace, and they are not open to everybody",
    Refuser.CAPABILITY: "this process is root without the capability CAP_DAC_OVERRIDE, and is not in group {group}",
    Refuser.MOUNT: "they lie on a file system that is mounted with nodev",
    Refuser.FILE_TYPE: "no device is there, but something else of that name",
}


def find(files: Refusals) -> Matches:
    for refuser, why in _WHY.items():
        if refused := files.by(refuser):
            users = getattr(files.facts.container, "user_namespace", None)
            seen = {
                Refuser.USER_NAMESPACE: f"/proc/self/uid_map: {users}" if users else "",
                Refuser.CAPABILITY: "/proc/self/status: CapEff lacks CAP_DAC_OVERRIDE",
            }
            more = [seen[refuser]] if seen.get(refuser) else []
            fix = files.actions(_fix(files, refuser), refused)
            yield files.match(refused, fix, *more, why=why.format(group=refused[0].node.group))


def _fix(files: Refusals, refuser: Refuser) -> tuple[Action, ...]:
    sandbox = files.sandbox if files.sandbox is not None and files.sandbox.is_container else None
    if refuser is Refuser.USER_NAMESPACE:
        open_to_all = configure("sudo chmod 0666 {files}", "until the next start of the machine", where=Where.HOST)
        return (sandbox.unmapped if sandbox is not None else ()) or (open_to_all,)
    if refuser is Refuser.CAPABILITY:
        join = sandbox.join if sandbox is not None else ()
        return (*join, run_container("--cap-add DAC_OVERRIDE", note="or gives root its usual right"))
    where = Where.HERE if sandbox is None else Where.HOST
    make = configure("sudo nvidia-modprobe -c 0 -u", "creates the devices that are missing", where=where)
    if refuser is Refuser.FILE_TYPE and sandbox is None:
        return (run("sudo rm -d {files}", "removes what is no device", kind=Kind.REMOVE), make)
    if refuser is Refuser.FILE_TYPE and sandbox is not None:
        return (make, sandbox.give.replaced(note="then a new container, because this one keeps what was mounted"))
    if sandbox is not None:
        return (sandbox.give.replaced(note="passes the devices themselves; a volume of /dev is mounted with nodev"),)
    return (
        configure("sudo mount -o remount,dev /dev"),
        start("bwrap --dev-bind /dev /dev ...", "if a sandbox of bubblewrap starts the program: not --bind"),
    )
