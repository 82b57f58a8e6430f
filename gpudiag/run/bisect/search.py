"""Decides what to try next and when to stop. Pure: a function that the caller passes runs the tries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpudiag.facts.start_files import FileSetting
from gpudiag.model.diagnosis import BisectionOutcome
from gpudiag.run.bisect.attempt import Reached
from gpudiag.run.bisect.elsewhere import missing
from gpudiag.run.bisect.parts import (
    ENTRY,
    FILE,
    GPU,
    MASK,
    EnvironmentPart,
    Surroundings,
    Variant,
    everything,
    expanded,
    suspects,
    variant,
    whole,
)
from gpudiag.run.bisect.parts import without_path_files as without_pth
from gpudiag.run.bisect.smallest import smallest

Attempt = Callable[[Sequence[Variant], bool], Sequence[Reached | None]]
"""Starts an interpreter for each variant; with True it waits for all, else until one works: None for the others."""


class OutOfTime(Exception):  # noqa: N818  # what happened, not an error
    """Raised when no more tries are allowed."""


_NOWHERE = Reached()


@dataclass(frozen=True)
class SearchResult:
    """The result of a search."""

    outcome: BisectionOutcome
    taken: tuple[EnvironmentPart, ...] = ()
    """The smallest set of parts without which TensorFlow works."""
    added: tuple[FileSetting, ...] = ()
    """The added settings with which TensorFlow works."""
    before: Reached = _NOWHERE
    after: Reached = _NOWHERE


class Search:
    """Looks for the smallest change of the environment with which TensorFlow gets its GPU."""

    def __init__(
        self,
        around: Surroundings,
        settings: Iterable[FileSetting],
        attempt: Attempt,
        wanted: int,
        *,
        only_missing: bool = False,
        only_suspects: bool = False,
        blamed: Sequence[str] = (),
    ) -> None:
        """Prepare a search; with ``only_missing`` it adds settings but removes no part, with ``only_suspects`` it
        removes nothing but variables that TensorFlow, CUDA or the loader reads. ``blamed`` are the UUIDs of the GPUs
        on which the probes failed, if they did not on the others: these are tried first."""
        self._around = around
        self._settings = missing(settings, around.variables)
        self._attempt = attempt
        self._wanted = wanted
        self._only_missing = only_missing
        self._only_suspects = only_suspects
        self._blamed = tuple(blamed)
        self._known: dict[frozenset[EnvironmentPart], Reached] = {}
        self._result = SearchResult(BisectionOutcome.OUT_OF_TIME)

    def run(self) -> SearchResult:
        """Return the result of the search; if time runs out, what was found until then."""
        with suppress(OutOfTime):
            self._run()
        return self._result

    def _run(self) -> None:
        if self._blamed and self._is_the_blamed():
            return
        every, some = everything(self._around), suspects(self._around)
        most = () if self._only_missing else some if self._only_suspects else every
        before, without = self._tries([(), most])
        if before.works(self._wanted):
            self._result = SearchResult(BisectionOutcome.NOT_REPRODUCED, before=before)
            return
        self._result = SearchResult(BisectionOutcome.OUT_OF_TIME, before=before)
        if self._only_missing:
            self._add()
            return
        if without.works(self._wanted):
            self._narrow(most)
            return
        if self._only_suspects:
            if without.failed and not without.cut_short:
                self._result = SearchResult(BisectionOutcome.LIBRARY_FAILS, before=before)
            return
        if not without.is_like(before):
            # It fails for another reason then: TensorFlow itself is found through a file .pth, or it needs one entry of
            # a list of which another is in the way.
            leaves = [leaf for part in every for leaf in part.leaves if leaf.kind in (ENTRY, FILE)]
            candidates = [some, without_pth(every), *((leaf,) for leaf in leaves)]
            number = self._works(candidates)
            if number is not None:
                self._narrow(candidates[number])
                return
        self._choose()
        if self._result.outcome is BisectionOutcome.FOUND:
            return
        self._result = SearchResult(BisectionOutcome.NOT_THE_ENVIRONMENT, before=before)
        self._add()

    def _is_the_blamed(self) -> bool:
        """Try the blamed GPUs, and the others, without each other; return whether that says why, or nothing fails."""
        others = [uuid for uuid in self._around.gpus if uuid not in self._blamed]
        masks = [{}, {MASK: ",".join(others)}, {MASK: ",".join(self._blamed)}]
        tries = self._attempt([variant(self._around, (), mask) for mask in masks], True)
        before, rest, alone = (reached or _NOWHERE for reached in tries)
        if before.works(self._wanted):
            self._result = SearchResult(BisectionOutcome.NOT_REPRODUCED, before=before)
            return True
        if alone.works(1) or not rest.works(len(others)):
            return False
        taken = (EnvironmentPart(GPU, uuid, alone.text(1), self._around.gpus[uuid]) for uuid in self._blamed)
        self._result = SearchResult(BisectionOutcome.FOUND, tuple(taken), (), before, rest)
        return True

    def _choose(self) -> None:
        """Try each GPU alone: one that fails keeps TensorFlow from all others, too."""
        gpus = self._around.gpus
        alone = [variant(self._around, (), {MASK: uuid}) for uuid in gpus] if len(gpus) > 1 else []
        reached = dict(zip(gpus, self._attempt(alone, True) if alone else (), strict=False))
        good = [result for result in reached.values() if result is not None and result.works(1)]
        if good and len(good) < len(gpus):
            bad = {uuid: result for uuid, result in reached.items() if result is None or not result.works(1)}
            taken = tuple(
                EnvironmentPart(GPU, uuid, "" if result is None else result.text(1), gpus[uuid])
                for uuid, result in bad.items()
            )
            self._result = SearchResult(BisectionOutcome.FOUND, taken, (), self._result.before, good[0])

    def _narrow(self, parts: tuple[EnvironmentPart, ...]) -> None:
        """Find the smallest of ``parts``, which work as a whole, then of what they are made of, and so on."""
        self._keep(parts, BisectionOutcome.CUT_SHORT)
        while True:
            parts = smallest(parts, self._works)
            inner = expanded(parts)
            if inner == parts:
                break
            parts = inner
        self._keep(parts, BisectionOutcome.FOUND)

    def _keep(self, parts: tuple[EnvironmentPart, ...], outcome: BisectionOutcome) -> None:
        after = self._known[_key(parts)]
        self._result = SearchResult(outcome, whole(parts, self._around), (), self._result.before, after)

    def _works(self, candidates: list[tuple[EnvironmentPart, ...]]) -> int | None:
        new = list({_key(parts): parts for parts in candidates if _key(parts) not in self._known}.values())
        known = [number for number, parts in enumerate(candidates) if self._is_good(parts)]
        if not known and new:
            variants = [variant(self._around, parts) for parts in new]
            for parts, reached in zip(new, self._attempt(variants, False), strict=True):
                if reached is not None:
                    self._known[_key(parts)] = reached
            known = [number for number, parts in enumerate(candidates) if self._is_good(parts)]
        if not known:
            return None
        self._keep(candidates[known[0]], BisectionOutcome.CUT_SHORT)
        return known[0]

    def _is_good(self, parts: tuple[EnvironmentPart, ...]) -> bool:
        reached = self._known.get(_key(parts))
        return reached is not None and reached.works(self._wanted)

    def _tries(self, candidates: list[tuple[EnvironmentPart, ...]]) -> list[Reached]:
        """Return the result of trying each candidate."""
        new = list(dict.fromkeys(candidates))
        for parts, reached in zip(new, self._attempt([variant(self._around, part) for part in new], True), strict=True):
            assert reached is not None
            self._known[_key(parts)] = reached
        return [self._known[_key(parts)] for parts in candidates]

    def _add(self) -> None:
        """Find the smallest set of settings from one file with which TensorFlow works."""
        files = dict.fromkeys(setting.file for setting in self._settings)
        groups = [tuple(setting for setting in self._settings if setting.file == file) for file in files]
        once = {tuple((setting.name, setting.value) for setting in group): group for group in reversed(groups)}
        groups = [group for group in groups if any(group is kept for kept in once.values())]
        number = self._works_with(groups)
        if number is not None:
            smallest(groups[number], self._works_with)
            self._result = replace(self._result, outcome=BisectionOutcome.FOUND)

    def _works_with(self, candidates: list[tuple[FileSetting, ...]]) -> int | None:
        variants = [
            variant(self._around, (), {setting.name: setting.value for setting in group}) for group in candidates
        ]
        for number, reached in enumerate(self._attempt(variants, False) if variants else ()):
            if reached is not None and reached.works(self._wanted):
                self._result = SearchResult(
                    BisectionOutcome.CUT_SHORT, (), candidates[number], self._result.before, reached
                )
                return number
        return None


def _key(parts: Iterable[EnvironmentPart]) -> frozenset[EnvironmentPart]:
    return frozenset(leaf for part in parts for leaf in part.leaves)
