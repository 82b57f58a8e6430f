"""The program of ``gpudiag.pyz``, which ``scripts/pyz.py`` packs as its ``__main__.py``.

It unpacks the archive into a folder of the user's cache, once, because compiled modules and libraries cannot be loaded
from an archive. gpudiag then runs from there as a guest (``gpudiag/guest.py``) of the interpreter that was started, so
that this environment is examined as it is, and TensorFlow gets nothing of what gpudiag brings.

Every Python from 2.7 on has to be able to read this file, so that it can say which one is needed.
"""

import os
import sys

# Filled in by scripts/pyz.py.
FOLDER = ""
SUFFIXES = ()
PACKAGES = ()
FITTING = ""

START = "gpudiag: error: "
DAMAGED = "%s is damaged (%s): get it again, and compare its SHA-256 sum with SHA256SUMS of the release"


def main():
    archive = os.path.abspath(sys.argv[0])
    if sys.version_info < (3, 10) or not is_fitting():
        refuse(archive)
    folder = unpacked(archive)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != archive]
    file = os.path.join(folder, "gpudiag", "guest.py")
    guest = {"__name__": "gpudiag.guest"}
    with open(file, encoding="utf-8") as stream:
        exec(compile(stream.read(), file, "exec"), guest)
    guest["enter"](
        {
            "executable": sys.executable,
            "gpudiag": [os.path.join(folder, "gpudiag")],
            "packages": dict.fromkeys(PACKAGES, folder),
            "archive": archive,
        }
    )
    from gpudiag.__main__ import main as run

    run()


def is_fitting():
    """Return whether this interpreter can import what is compiled."""
    from importlib.machinery import EXTENSION_SUFFIXES

    return bool(set(SUFFIXES) & set(EXTENSION_SUFFIXES))


def refuse(archive):
    """End with the interpreter that can run the archive, as a command if there is one."""
    import platform
    import subprocess

    try:
        from shlex import quote
    except ImportError:  # Python 2
        from pipes import quote
    this = "Python %s (%s, %s)" % (platform.python_version(), platform.machine(), sys.platform)
    why = "gpudiag.pyz needs %s, and this is %s" % (FITTING, this)
    for suffix in reversed(SUFFIXES):  # .cpython-313-x86_64-linux-gnu.so
        name = "python3." + suffix.split("-")[1][1:]
        for place in os.environ.get("PATH", "").split(os.pathsep):
            program = os.path.join(place, name)
            ask = "import importlib.machinery as m, sys; sys.exit(%r not in m.EXTENSION_SUFFIXES)" % suffix
            try:
                with open(os.devnull, "w") as null:
                    fits = not subprocess.call([program, "-c", ask], stdout=null, stderr=null)
            except (OSError, ValueError):
                continue
            if fits:  # a program of pyenv's may be for a version that is not switched on
                stop("%s. Type: %s" % (why, " ".join(map(quote, [program, archive] + sys.argv[1:]))))  # noqa: RUF005  # Python 2
    stop("%s. None was found on PATH." % why)


def unpacked(archive):
    """Return the folder in which gpudiag is unpacked, which is made if need be."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    cache = cache if os.path.isabs(cache) else os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "gpudiag", FOLDER)
    if os.path.isabs(folder) and is_private(folder) and not is_noexec(folder):
        return folder
    folder = unpack(archive)
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpudiag"]:
        del sys.modules[name]  # that of the archive
    return folder


def is_private(folder):
    """Return whether nobody else can have written the folder, in the usual case.

    :mod:`gpudiag.trust` knows more cases, but to compile it takes longer than all else here: 15 to 40 ms.
    """
    if os.path.realpath(folder) != folder:
        return False
    step = folder
    try:
        while True:
            status = os.lstat(step)
            is_sticky = status.st_mode & 0o1000 and step != folder
            if status.st_uid not in (0, os.geteuid()) or (status.st_mode & 0o022 and not is_sticky):
                return False
            if step == os.path.dirname(step):
                return True
            step = os.path.dirname(step)
    except OSError:
        return False


def is_noexec(folder):
    """Return whether no library can be loaded from the folder."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def unpack(archive):
    """Return the folder in the first place in which it is, or can be made, and that nobody else can have written."""
    import zipfile
    import zlib

    reasons = []
    try:
        from gpudiag import examined, folders, trust  # from the archive

        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if member.filename != "__main__.py"]
            for place in examined.places():
                folder = place / FOLDER
                try:
                    place.mkdir(mode=0o700, parents=True, exist_ok=True)
                    reason = trust.distrust(place) or ("it is mounted with noexec" if is_noexec(place) else "")
                    if not reason and not folder.is_dir():
                        folders.remove_leftovers(place, folders.HIDDEN)
                        with folders.new(folder) as unfinished:
                            packed.extractall(unfinished, members)
                        sys.stderr.write("gpudiag: unpacked in %s\n" % folder)
                except OSError as error:
                    # Another start may have made it meanwhile.
                    reason = "" if folder.is_dir() else error.strerror or str(error)
                reason = reason or trust.distrust(folder) or lacking(folder, members)
                if not reason:
                    return str(folder)
                reasons.append("%s: %s" % (place, reason))
    except (zipfile.BadZipFile, zlib.error, EOFError, ImportError, SyntaxError) as error:
        return stop(DAMAGED % (archive, error))
    return stop(
        "gpudiag.pyz has to be unpacked, and no folder can be used (%s). Name one: XDG_CACHE_HOME=FOLDER"
        % "; ".join(reasons)
    )


def lacking(folder, members):
    """Return which file a program that tidies up has removed; "" if none."""
    for member in members:
        try:
            if os.path.getsize(os.path.join(str(folder), member.filename)) == member.file_size:
                continue
        except OSError:
            pass
        return "%s/%s is not as it was unpacked; remove that folder" % (folder, member.filename)
    return ""


def stop(sentence):
    sys.stderr.write("%s%s\n" % (START, sentence))
    sys.exit(3)


if __name__ == "__main__":
    main()
