"""the computer itself fails when the GPU works, as is said: its power supply, its cooling or the card

A program can end itself, and a driver can reset a GPU; neither switches a computer off. Under load a card takes several
times its usual power, in peaks: a supply that is too weak, or hot, or one cable for two plugs, gives up then.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        "sudo nvidia-smi -pl 150  # a lower limit of power (watts): if it stays on then, it is the supply",
        "nvidia-smi -q -d TEMPERATURE,POWER -l 1  # while it runs: what comes just before",
        "# another power supply, a cable for each plug of the card, cleaned fans; then another card",
    ),
    url="https://docs.nvidia.com/deploy/nvidia-smi/",
    last_resort=True,
    needs_gpu=False,
)
_OFF = re.compile(
    r"(?i)\b(?:computer|pc|machine|system|server|laptop|windows(?: 1[01])?|workstation|ubuntu) (?:\w{1,12} ){0,3}?"
    r"(?:shuts? (?:itself )?(?:down|off)|turns? (?:itself )?off|switch(?:es)? (?:itself )?off|"
    r"powers? (?:down|off)|reboots?|restarts?)\b"
)
_AT_WORK = re.compile(r"(?i)\bgpus?\b|\btrain|\btensorflow\b|\bcuda\b|\bmodel\b")


def find(program: LogAlone, origin: Origin) -> Matches:
    said = next((line for line in origin.stated.prose if _OFF.search(line)), None)
    if said and any(map(_AT_WORK.search, program.lines)):
        yield Match((text(said),), Confidence.POSSIBLE)
