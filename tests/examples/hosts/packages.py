"""Examples of ``host.packages``."""

from __future__ import annotations

import msgspec

from examples.facts import example, example_with_gpus
from examples.hosts import Case
from gpudiag.model.facts import Distribution, TensorflowFacts, Unknown

_SITE = "/home/someone/venv/lib/python3.11/site-packages"


RANGES = {"nvidia-cudnn-cu12": "<10.0,>=9.3.0.75", "nvidia-nccl-cu12": "<3.0,>=2.27.7"}


def example_packages(
    *companions: str, frameworks: tuple[str, ...] = (), plugins: tuple[str, ...] = (), **changes: object
) -> TensorflowFacts:
    """Return TensorFlow 2.21 with packages such as ``nvidia-cudnn-cu12 9.3.0.75``."""

    def distributions(texts: tuple[str, ...]) -> tuple[Distribution, ...]:
        return tuple(Distribution(name, version, _SITE) for name, version in map(str.split, texts))

    ordinary = example().tensorflow
    assert isinstance(ordinary, TensorflowFacts)
    return msgspec.structs.replace(
        ordinary,
        **{
            "companions": distributions(companions),
            "frameworks": distributions(frameworks),
            "plugin_distributions": distributions(plugins),
            "ranges": RANGES,
            **changes,
        },
    )


CASES = (
    Case("no GPU", expect=(), facts=example(tensorflow=example_packages("nvidia-cudnn-cu12 8.9.7.29"))),
    Case("no packages", expect=(), facts=example_with_gpus(2)),
    Case(
        "in range, torch and jax beside",
        expect=(),
        facts=example_with_gpus(
            tensorflow=example_packages(
                "nvidia-cudnn-cu12 9.10.2.21",
                "nvidia-nccl-cu12 2.27.7",
                "nvidia-cusparselt-cu12 0.7.1",
                frameworks=("torch 2.8.0", "jax 0.8.0", "jaxlib 0.8.0"),
            )
        ),
    ),
    Case(
        "cuDNN 8 pinned by an old torch",
        expect=("out_of_range",),
        facts=example_with_gpus(tensorflow=example_packages("nvidia-cudnn-cu12 8.9.2.26", frameworks=("torch 2.2.0",))),
    ),
    Case(
        "cu12 and cu13 side by side",
        expect=("shared_folder",),
        facts=example_with_gpus(
            tensorflow=example_packages("nvidia-cudnn-cu12 9.10.2.21", "nvidia-cudnn-cu13 9.13.0.50")
        ),
    ),
    Case(
        "CUDA 13 in folders of its own",
        expect=(),
        facts=example_with_gpus(tensorflow=example_packages("nvidia-cublas-cu12 12.9.3.13", "nvidia-cublas 13.1.0.3")),
    ),
    Case(
        "overwritten",
        expect=("altered",),
        facts=example(tensorflow=example_packages(altered=("tensorflow/__init__.py",))),
    ),
    Case(
        "overwritten by one that is still installed: host.tensorflow says so",
        expect=(),
        facts=example(
            tensorflow=example_packages(
                altered=("tensorflow/__init__.py",),
                distributions=(
                    Distribution("tensorflow", "2.21.0", _SITE),
                    Distribution("tensorflow-cpu", "2.21.0", _SITE),
                ),
            )
        ),
    ),
    Case(
        "DirectML beside 2.21",
        expect=("directml",),
        facts=example(tensorflow=example_packages(plugins=("tensorflow-directml-plugin 0.4.0.dev230202",))),
    ),
    Case(
        "DirectML beside 2.10",
        expect=(),
        facts=example(
            tensorflow=example_packages(
                plugins=("tensorflow-directml-plugin 0.4.0.dev230202",),
                distributions=(Distribution("tensorflow-cpu", "2.10.0", _SITE),),
            )
        ),
    ),
    Case(
        "metadata of another package that is no text",
        expect=("unreadable",),
        facts=example(tensorflow=example_packages(unreadable=(f"{_SITE}/nvidia_cudnn_cu12-9.3.0.75.dist-info",))),
    ),
    Case("not gathered", expect=(), facts=example(tensorflow=Unknown("no answer within 15 s"))),
)
