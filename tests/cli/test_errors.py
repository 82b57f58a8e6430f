"""One style of errors: a prefix, what is wrong in lower case, and what to do, on one line that ends as a sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gpudiag import cli

WRONG = """
chek
check --foo
check nosuch
check --skip nosuch
check --timeout x
check --level fast
check --fault cuinit
check -o x.abc
check -o /nosuch/x.json
check --baseline nosuch.json
check --expect nosuch
check --config nosuch
list nosuch
why nosuch.log
why .
show
show nosuch.json
show .
simulate
simulate 2 -- nosuch-command
simulate 2 --fault nosuch
simulate --list --stop a
simulate --attach nosuch
simulate --list 2
docs xyzzyq
explain xyzzy
lint nosuch
lint --fix --diff
lint --select nope
lint --gpu-memory x
lint - --fix
trace
trace -- nosuch-command
expect nosuch.json
expect --from nosuch.json
diff a
diff a b
bundle --from nosuch.json
""".strip().splitlines()


@pytest.mark.parametrize("line", WRONG)
def test_an_error_says_what_is_wrong_and_what_to_do(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gpudiag", *line.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == (127 if "nosuch-command" in line else 2)
    out, err = capsys.readouterr()
    assert out == ""
    *notes, text = err.splitlines()
    assert all(note.startswith("gpudiag: ") for note in notes)
    assert text.startswith("gpudiag: error: ")
    message = text.removeprefix("gpudiag: error: ")
    assert not re.match(r"[A-Z][a-z]+ [a-z]", message), "no capital, but of names"
    assert "  " not in message
    assert message.endswith(".") or re.search(r": gpudiag [^:]+$", message), (
        "a sentence, or a command that can be pasted"
    )
