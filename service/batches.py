"""What comes one after another, put together in batches."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def batches(items: AsyncIterator[T], size: int) -> AsyncGenerator[list[T], None]:
    """Yield items in lists of so many, and what is left in a last one."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
