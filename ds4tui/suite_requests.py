"""What `R` and `a` ask the engine for: the matrix, the set, all cells of one prompt.

Owns how the knobs become cells, and the estimate of how long that takes. The engine's part is
imported when it is needed, since it brings numpy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ds4tui.controller import Controller
from engine.paths import NUMERICS
from engine.prompt_set import PromptEntry

if TYPE_CHECKING:
    from engine.suite import MatrixRequest


def matrix_of(
    controller: Controller, only: tuple[str, ...] = (), indexes: tuple[int, ...] = ()
) -> MatrixRequest | None:
    """Every numerics and policy over the set, at the thresholds and with the drafters of the
    wanted arms; None without a drafter or a set.

    Args:
        only: names of the cells to run; empty = all.
        indexes: of the prompts to run; empty = all.
    """
    return _matrix(controller, controller.prompts, controller.set_name, only, indexes)


def matrix_of_prompt(controller: Controller) -> MatrixRequest | None:
    """All cells of the current prompt: within its set where it is of one, else on its own."""
    at = controller.prompt_index
    if at is not None:
        return matrix_of(controller, indexes=(at,))
    own = (PromptEntry("", "", controller.prompt),) if controller.prompt.text else ()
    return _matrix(controller, own, "")


def _matrix(
    controller: Controller,
    prompts: tuple[PromptEntry, ...],
    name: str,
    only: tuple[str, ...] = (),
    indexes: tuple[int, ...] = (),
) -> MatrixRequest | None:
    from engine.suite import MatrixRequest, matrix_arms, suite_prompts

    settings = controller.settings
    bases = tuple(dict.fromkeys(replace(knobs, commit="direct") for knobs in settings.dspark))
    if not bases or not prompts or (controller.ready and not controller.ready.block_size):
        return None
    return MatrixRequest(
        suite_prompts(prompts),
        replace(settings, numerics="split", dspark=matrix_arms(bases=bases), controls=False),
        ("split",) if settings.why_split else NUMERICS,
        name=name,
        only=only,
        indexes=indexes,
    )


def set_of(controller: Controller) -> MatrixRequest | None:
    """One prompt of the set after the other with the wanted settings; None without a set."""
    from engine.suite import set_request, suite_prompts

    if not controller.prompts:
        return None
    settings = controller.settings
    if controller.ready and not controller.ready.block_size:
        settings = replace(settings, dspark=())
    return set_request(suite_prompts(controller.prompts), settings, controller.set_name)


def seconds_for(controller: Controller, request: MatrixRequest) -> float | None:
    """About how long a suite takes, judged by the last whole run; None before one.

    A run's time is taken as proportional to its arms and its tokens.
    """
    record = controller.kept
    if record is None or record.started is None or record.finished is None:
        return None
    spent = (record.finished.t_ns - record.started.t_ns) / 1e9
    steps = sum(len(arm.ids) for arm in record.arms)
    if not steps:
        return None
    longest = max(len(arm.ids) for arm in record.arms)
    limit = request.settings.max_tokens
    tokens = limit if longest >= record.started.max_tokens else min(limit, longest)
    arms = len(request.cells()) + len(request.numerics)
    prompts = len(request.indexes) or len(request.prompts)
    return spent / steps * tokens * arms * prompts
