"""Program that answers the prompts in the folder `input` with a GGUF model: `batch.py MODEL MAX_TOKENS TEMPERATURE`."""

import json
import pathlib
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from xllamacpp import CommonParams, Server

#: Number of prompts that are answered at the same time.
#: Maximum number of tokens of a prompt and its answer together.
PARALLEL, CONTEXT = 4, 4096
SAY_SECONDS = 5.0


def prompts(folder: pathlib.Path) -> Iterator[str]:
    """Yield the prompts in all files of a folder, one per line.

    A line is a JSON text, a JSON object with text or prompt, or plain text.
    """
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if line.strip():
                yield prompt(line, f"{path}, line {number}")


def prompt(line: str, where: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict):
        value = value.get("text", value.get("prompt"))
    if not isinstance(value, str):
        sys.exit(f"{where}: a prompt must be a text, or an object with text or prompt; got {line[:100]}")
    return value


def serving(path: str) -> Server:
    chosen = CommonParams()
    chosen.model.path = path
    chosen.n_ctx, chosen.n_parallel = CONTEXT * PARALLEL, PARALLEL
    chosen.endpoint_metrics = chosen.endpoint_slots = chosen.ui = False
    return Server(chosen)


def main() -> None:
    path, tokens, temperature = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    asked = list(prompts(pathlib.Path("input")))
    if not asked:
        sys.exit("the input contains no prompts: all files are empty")
    server = serving(path)

    def answer(text: str) -> str:
        found = server.handle_completions({"prompt": text, "max_tokens": tokens, "temperature": temperature})
        found = found if isinstance(found, dict) else json.loads(found)
        if "error" in found:
            raise ValueError(str(found["error"].get("message", found["error"]))[:500])
        return str(found["choices"][0]["text"])

    pathlib.Path("answers").mkdir()
    said = time.monotonic()
    with (
        ThreadPoolExecutor(PARALLEL) as pool,
        pathlib.Path("answers/answers.jsonl").open("w", encoding="utf-8") as file,
    ):
        answers = pool.map(answer, asked)
        for number, text in enumerate(asked, 1):
            try:
                found = next(answers)
            except ValueError as error:
                pool.shutdown(cancel_futures=True)
                sys.exit(f"prompt {number} of {len(asked)}: {error}")
            file.write(json.dumps({"text": found, "prompt": text}, ensure_ascii=False) + "\n")
            if number == len(asked) or time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                print(f"{number} of {len(asked)} prompts answered", flush=True)


if __name__ == "__main__":
    main()
