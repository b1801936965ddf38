"""Run two programs at the same time from asyncio."""

import asyncio

from threads_cluster import AsyncCluster


async def main() -> None:
    async with AsyncCluster() as cluster:
        for ended in await asyncio.gather(cluster.run(["hostname"]), cluster.run(["uname", "-a"])):
            print(ended.stdout.decode(), end="")


if __name__ == "__main__":
    asyncio.run(main())
