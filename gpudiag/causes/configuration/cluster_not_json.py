"""TF_CONFIG is not JSON: MultiWorkerMirroredStrategy and ParameterServerStrategy raise JSONDecodeError

The usual mistakes are single quotes, a comma after the last item, and quotes that the shell removed.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.fix import check
from gpudiag.knowledge.variables import CLUSTER, NO_JSON
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(check('echo "$TF_CONFIG" | python -m json.tool', "names the place of the mistake"),),
    url="https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras",
    finding="host.environment.cluster_unreadable",
    row_only=True,
)


def find(variables: Variables) -> Matches:
    if variables.get(CLUSTER) == NO_JSON:
        yield Match(evidence=(f"{CLUSTER} {NO_JSON}",))
