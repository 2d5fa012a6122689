"""The end of background tasks, alike for all their owners. Starts none."""

import asyncio


async def cancel(*tasks: asyncio.Task[object] | None) -> None:
    """Cancel these tasks and wait until all have ended, however they end. None: a task that was not started."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)
