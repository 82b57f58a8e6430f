"""Writes the verdict of a report on the Kubernetes node of this pod, as a label and annotations.

It is one request to the API with the token of the pod's account: an image with TensorFlow has no kubectl, and the
Python client of Kubernetes is 30 MB for it. https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpudiag.errors import GpudiagError, ReportError, UsageError, shortage
from gpudiag.fleet.digest import digest
from gpudiag.fleet.nodes import labels_of
from gpudiag.fleet.summary import summarized
from gpudiag.model import codec
from gpudiag.model.fleet import NodeVerdict
from gpudiag.text import one_line

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NODE = "GPUDIAG_NODE"
VERDICT, CAUSE, CHECKED_AT, REPORT = "gpudiag/verdict", "gpudiag/cause", "gpudiag/checked-at", "gpudiag/report"
_PATIENCE_S = 30
_MOST_CAUSE = 500


class LabelError(GpudiagError):
    """The API server did not take the label."""


def change_for(report: Path, now: str) -> dict[str, Any]:
    """Return the change to a node that says what a report found.

    If the report cannot be read the verdict is ``NO_REPORT``: the label of an earlier check must not stay.
    """
    try:
        loaded = codec.load(report)
    except ReportError as error:
        verdict, cause, line = NodeVerdict.NO_REPORT.value, one_line(str(error)), None
    else:
        summary = summarized(loaded)
        verdict, now, line = summary.verdict.value, summary.started_at, digest(loaded).rstrip()
        cause = ": ".join(filter(None, [next(iter(labels_of(summary)), ""), summary.headline]))
    annotations = {CAUSE: cause[:_MOST_CAUSE] or None, CHECKED_AT: now, REPORT: line}
    return {"metadata": {"labels": {VERDICT: verdict.replace(" ", "_")}, "annotations": annotations}}


def write(change: Mapping[str, Any], environ: Mapping[str, str], account: Path = ACCOUNT) -> str:
    """Change the node that ``GPUDIAG_NODE`` names and return its name.

    Raises :class:`UsageError` outside of a pod, and :class:`LabelError` if the API server refuses.
    """
    try:
        node, host, port = (environ[name] for name in (NODE, "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"))
        token = (account / "token").read_text().strip()
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except KeyError as missing:
        raise UsageError(
            f"{missing.args[0]} is not set: this runs in a pod of 'gpudiag fleet manifest daemonset'."
        ) from None
    except OSError as error:
        raise UsageError(f"this pod has no token for the API server: {shortage(error)}") from None
    request = urllib.request.Request(  # https, always
        f"https://{f'[{host}]' if ':' in host else host}:{port}/api/v1/nodes/{node}?fieldManager=gpudiag",
        json.dumps(change).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
        method="PATCH",
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=_PATIENCE_S):
            return node
    except urllib.error.HTTPError as error:
        raise LabelError(f"{node}: the API server refused the label: {error.code} {_message(error)}") from None
    except (OSError, urllib.error.URLError) as error:
        raise LabelError(f"{node}: the API server could not be asked for the label: {error}") from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return one_line(str(json.loads(error.read(1 << 16))["message"]))
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason
