"""One function, many items: as tasks on a Ray cluster, those of a lost worker once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from bayestream.running.ray_cluster import library, options, reason

Item = TypeVar("Item")
Found = TypeVar("Found")
_TRIES = 3  # times more, for a task whose worker was lost
_INTERVAL = 0.2  # seconds between looks at whether to go on


def spread(
    ray: Any, function: Callable[[Item], Found], *, begin: Callable[[], None] | None = None
) -> Callable[[Sequence[Item], Callable[[], bool]], Iterator[tuple[int, Found]]]:
    """A function of items that gives each one's place and result, in the order they finish.

    Args:
        ray: connected.
        function: sent to every worker once, however often the items come.
        begin: called first by every worker.

    The second argument of what is returned is asked now and then whether to stop: what is not
    finished by then is cancelled. What the function raises is raised here.
    """
    shipped = ray.put((function, begin))
    task = ray.remote(_call).options(num_cpus=1, max_retries=_TRIES, **options())

    def results(items: Sequence[Item], stop: Callable[[], bool]) -> Iterator[tuple[int, Found]]:
        waiting = {task.remote([shipped], item): place for place, item in enumerate(items)}
        try:
            while waiting and not stop():
                for ref in ray.wait([*waiting], timeout=_INTERVAL)[0]:
                    yield waiting.pop(ref), _result(ray, ref)
        finally:
            for ref in waiting:
                ray.cancel(ref, force=True)

    return results


def _result(ray: Any, ref: Any) -> Any:
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"The workers of a trial were lost {_TRIES + 1} times: {reason(error)}."
        ) from None


def _call(shipped: list[Any], item: Any) -> Any:
    return _function(*shipped)(item)


@lru_cache(maxsize=1)  # the same object for all items, or JAX would compile for each anew
def _function(ref: Any) -> Callable[[Any], Any]:
    function, begin = library().get(ref)
    if begin is not None:
        begin()
    return function
