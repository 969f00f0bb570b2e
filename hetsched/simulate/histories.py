"""The histories of one device and variant in a simulation, one for each kind of co-runners."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.models import DeviceModel
from hetsched.models.evidence.co_runners import CoRunners
from hetsched.models.evidence.history import History


class CoRunnerHistories:
    """Histories by co-runners, created when they are needed."""

    def __init__(self) -> None:
        self._histories: dict[CoRunners, History] = {}

    def beside(self, co_runners: CoRunners) -> History:
        """Return the history of runs beside these."""
        return self._histories.setdefault(co_runners, History())

    @property
    def runs(self) -> int:
        """Runs beside any co-runners."""
        return sum(history.runs for history in self._histories.values())

    def models(self, link: bool) -> dict[CoRunners, DeviceModel]:
        """Return the models of all histories that have measurements."""
        models = {key: history.model(link) for key, history in self._histories.items()}
        return {key: model for key, model in models.items() if model is not None}


def by_co_runners(
    histories: Mapping[str, CoRunnerHistories], link: bool
) -> tuple[dict[CoRunners, dict[str, DeviceModel]], dict[CoRunners, dict[str, int]]]:
    """Return the models and runs of one device's variants, as a Candidate needs them."""
    models: dict[CoRunners, dict[str, DeviceModel]] = {}
    runs: dict[CoRunners, dict[str, int]] = {}
    for variant, history in histories.items():
        for co_runners, model in history.models(link).items():
            models.setdefault(co_runners, {})[variant] = model
            runs.setdefault(co_runners, {})[variant] = history.beside(co_runners).runs
    return models, runs
