"""the environment variables could not be read

They are read in a separate process, without any device and without a network. A failure there is most often a lack of
processes or memory.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import ask
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    title="the environment variables could not be read: {reason}",
    fix=(ask("gpudiag check host.environment --debug", "report what it prints"),),
    url="https://www.tensorflow.org/guide/gpu",
    finding="host.environment.not_gathered",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    if isinstance(facts.environment, Unknown):
        yield Match(evidence=(facts.environment.reason,), figures={"reason": facts.environment.reason})
