"""Server of one folder of safetensors weights with OpenAI's API. It runs until SIGTERM.

Its address is in the environment.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)

MOST_BODY, MOST_STOPS, DEFAULT_TOKENS = 8 << 20, 16, 256
CALLS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
#: Default values of unsupported parameters. Other values are rejected, because they would change the answer.
UNSUPPORTED_DEFAULTS = {
    "n": 1,
    "best_of": 1,
    "logprobs": 0,
    "top_logprobs": 0,
    "echo": False,
    "suffix": "",
    "tools": [],
    "functions": [],
    "logit_bias": {},
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
}


class BadRequest(Exception):
    """The request is invalid. The message contains the reason."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("model", "name", "dtype"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("context", "parallel", "threads", "gpus"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--trust-remote-code", action="store_true")
    return parser.parse_args()


def number(body: dict[str, Any], name: str, default: float, least: float, most: float, *, whole: bool = False) -> Any:
    """Return a number from a request. Raises BadRequest with its name and its bounds."""
    value = default if body.get(name) is None else body[name]
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool) and least <= value <= most
    if not fits:
        raise BadRequest(f"{name}: must be {'a whole number' if whole else 'a number'} of {least:g} to {most:g}")
    return value


class Ends(StoppingCriteria):
    """Criterion that stops an answer after a stop text, and after the client has disconnected."""

    def __init__(self) -> None:
        self.now = threading.Event()

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self.now.is_set(), dtype=torch.bool, device=input_ids.device)


class CountedText(TextIteratorStreamer):
    """Stream of the texts of an answer, which also counts the answer's tokens."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.tokens = 0
        self._prompt = True

    def put(self, value: Any) -> None:
        if not self._prompt:
            self.tokens += int(value.numel())
        self._prompt = False
        super().put(value)


class ServedModel:
    """Model in memory. It computes up to `parallel` answers at the same time."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.name, self.context = asked.name, asked.context
        # By default, torch uses the cores of the machine, even if the container has a lower CPU limit.
        cores = torch.get_num_threads()
        torch.set_num_threads(asked.threads or min(cores, int(os.environ.get("CLUSTER_CPUS", cores))))
        local = {"local_files_only": True, "trust_remote_code": asked.trust_remote_code}
        place = {"device_map": "auto"} if asked.gpus > 1 else {}
        self.tokenizer = AutoTokenizer.from_pretrained(asked.model, **local)
        self.model = AutoModelForCausalLM.from_pretrained(
            asked.model, use_safetensors=True, dtype=asked.dtype, **local, **place
        )
        if asked.gpus == 1:
            self.model.to("cuda")
        self.model.eval()
        longest = getattr(self.model.config, "max_position_embeddings", 0) or 0
        self.context = min(filter(None, (self.context, longest)), default=4096)
        self.turns = threading.BoundedSemaphore(asked.parallel)

    def tokens(self, path: str, body: dict[str, Any]) -> Any:
        """Return the tokens of a prompt. Raises BadRequest if the prompt is invalid or too long."""
        given: Any = body.get(CALLS[path])
        try:
            if path.startswith("/v1/chat"):
                found = self.tokenizer.apply_chat_template(given, add_generation_prompt=True, return_dict=False)
            elif isinstance(given, str):
                found = self.tokenizer(given)["input_ids"]
            else:
                found = [each for each in given if type(each) is int and 0 <= each < self.model.config.vocab_size]
        except Exception as error:
            raise BadRequest(f"{CALLS[path]}: is invalid: {str(error) or type(error).__name__}"[:500]) from None
        if not found or (isinstance(given, list) and "prompt" in CALLS[path] and len(found) != len(given)):
            raise BadRequest(f"{CALLS[path]}: must be a non-empty text or tokens of this model")
        if len(found) >= self.context:
            raise BadRequest(
                f"{CALLS[path]}: has {len(found)} tokens, which exceeds the available context of {self.context}"
            )
        return torch.tensor([found], device=self.model.device)

    def answer(self, prompt: Any, how: dict[str, Any], ends: Ends, streamer: CountedText) -> threading.Thread:
        """Start to compute an answer in a thread. The streamer receives its texts, and always ends."""

        def compute() -> None:
            try:
                with self.turns, torch.inference_mode():
                    criteria = StoppingCriteriaList([ends])
                    self.model.generate(
                        prompt,
                        attention_mask=torch.ones_like(prompt),
                        streamer=streamer,
                        stopping_criteria=criteria,
                        **how,
                    )
            except Exception as error:
                print(f"an answer failed: {error}", file=sys.stderr, flush=True)
                streamer.failed = str(error) or type(error).__name__
                streamer.text_queue.put(streamer.stop_signal)

        thread = threading.Thread(target=compute, daemon=True)
        thread.start()
        return thread


def choices(body: dict[str, Any], left: int) -> tuple[dict[str, Any], list[str]]:
    """Return the options for generating an answer, and the stop texts. Raises BadRequest with the invalid parameter."""
    for name, usual in UNSUPPORTED_DEFAULTS.items():
        if body.get(name) not in (None, usual, False if usual == 0 else usual):
            raise BadRequest(f"{name}: is not supported by this engine; omit it")
    asked = body.get("max_completion_tokens", body.get("max_tokens"))
    most = number({"max_tokens": asked}, "max_tokens", min(DEFAULT_TOKENS, left), 1, 1 << 22, whole=True)
    heat = number(body, "temperature", 1.0, 0, 100)
    how: dict[str, Any] = {"max_new_tokens": min(most, left), "do_sample": heat > 0}
    if heat > 0:
        how |= {"temperature": float(heat), "top_p": float(number(body, "top_p", 1.0, 0, 1)) or 1e-6, "top_k": 0}
    if (seed := body.get("seed")) is not None:
        torch.manual_seed(number({"seed": seed}, "seed", 0, 0, 2**63 - 1, whole=True))
    stops = body.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not (
        isinstance(stops, list) and len(stops) <= MOST_STOPS and all(isinstance(one, str) and one for one in stops)
    ):
        raise BadRequest(f"stop: must be a text, or a list of at most {MOST_STOPS} texts")
    return how, stops


class StopFilter:
    """Filter that ends a text at the first stop text. It holds back characters that can be the start of one."""

    def __init__(self, stops: list[str]) -> None:
        self._stops, self._held = stops, ""
        self.done = False

    def feed(self, text: str, *, last: bool = False) -> str:
        """Add generated text, and return the text that can be sent to the client now."""
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.done = True
            return self._held[: min(found)]
        begun = (size for stop in self._stops for size in range(1, len(stop)) if self._held.endswith(stop[:size]))
        keep = 0 if last else max(begun, default=0)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return ready


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: ServedModel
    key = ""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self.send_whole(200, {"status": "ok"})
        elif self.check_key() and self.path == "/v1/models":
            self.send_whole(200, {"object": "list", "data": [{"id": self.served.name, "object": "model"}]})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isdecimal() and int(length) <= MOST_BODY):
            self.close_connection = True
            self.fault(413, f"the body must have a Content-Length of at most {MOST_BODY} bytes")
            return
        text = self.rfile.read(int(length))
        if not self.check_key():
            return
        if self.path not in CALLS:
            self.fault(404, "this path does not exist")
            return
        try:
            body = json.loads(text)
            if not isinstance(body, dict):
                raise BadRequest("the body must be an object")
            self.generate(body)
        except (ValueError, RecursionError):
            self.fault(400, "the body is not JSON")
        except BadRequest as wrong:
            self.fault(400, str(wrong))

    def check_key(self) -> bool:
        given = self.headers.get("Authorization", "").encode()
        if hmac.compare_digest(given, f"Bearer {self.key}".encode()):
            return True
        self.fault(401, "the key is wrong")
        return False

    def generate(self, body: dict[str, Any]) -> None:
        prompt = self.served.tokens(self.path, body)
        how, stops = choices(body, self.served.context - prompt.shape[1])
        ends, streamer, cut = Ends(), CountedText(self.served.tokenizer), StopFilter(stops)
        streams = body.get("stream") is True
        options = body.get("stream_options")
        counts = streams and isinstance(options, dict) and options.get("include_usage") is True
        thread = self.served.answer(prompt, how, ends, streamer)
        texts: list[str] = []
        try:
            if streams:
                self.begin_stream()
            for text in streamer:
                ready = cut.feed(text)
                if ready:
                    self.frame(ready) if streams else texts.append(ready)
                if cut.done:
                    ends.now.set()
                    break
                if not streams and self.is_abandoned():
                    raise ConnectionResetError
            rest = "" if cut.done else cut.feed("", last=True)
        except OSError:
            ends.now.set()  # The client has disconnected
            self.close_connection = True
            return
        finally:
            thread.join() if cut.done or ends.now.is_set() else None
        if failed := getattr(streamer, "failed", ""):
            self.broken(failed, streams=streams)
            return
        thread.join()
        usage = self.usage(prompt.shape[1], streamer.tokens)
        why = "length" if streamer.tokens >= how["max_new_tokens"] and not cut.done else "stop"
        if streams:
            self.end_stream(rest, why, usage if counts else None)
        else:
            self.send_whole(200, self.object("".join(texts) + rest, why) | {"usage": usage})

    def is_abandoned(self) -> bool:
        """Return True if the client has closed its connection."""
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        finally:
            self.connection.setblocking(True)

    def usage(self, prompt: int, tokens: int) -> dict[str, int]:
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}

    def object(self, text: str, why: str | None, *, delta: bool = False) -> dict[str, Any]:
        chats = self.path.startswith("/v1/chat")
        if chats:
            choice: dict[str, Any] = {"delta" if delta else "message": {"role": "assistant", "content": text}}
        else:
            choice = {"text": text}
        sort = "text_completion" if not chats else "chat.completion.chunk" if delta else "chat.completion"
        return {
            "id": f"{'chatcmpl' if chats else 'cmpl'}-{uuid.uuid4().hex}",
            "object": sort,
            "created": int(time.time()),
            "model": self.served.name,
            "choices": [{"index": 0, **choice, "finish_reason": why, "logprobs": None}],
        }

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def frame(self, text: str, why: str | None = None) -> None:
        self.send(self.object(text, why, delta=True))

    def end_stream(self, rest: str, why: str, usage: dict[str, int] | None) -> None:
        try:
            self.frame(rest, why)
            if usage is not None:
                self.send({**self.object("", None, delta=True), "choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.close_connection = True

    def broken(self, why: str, *, streams: bool) -> None:
        if not streams:
            self.fault(500, why)
            return
        try:
            self.send({"error": {"message": why, "type": "server_error"}})
        except OSError:
            self.close_connection = True

    def send(self, row: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(row).encode() + b"\n\n")

    def fault(self, status: int, why: str) -> None:
        sort = "invalid_request_error" if status < 500 else "server_error"
        self.send_whole(status, {"error": {"message": why, "type": sort, "param": None, "code": None}})

    def send_whole(self, status: int, row: dict[str, Any]) -> None:
        text = json.dumps(row).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    told = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, told)
    threading.Thread(target=lambda: (signal.sigwait(told), os._exit(0)), daemon=True).start()
    Answer.served, Answer.key = ServedModel(parse_arguments()), os.environ["CLUSTER_KEY"]
    address = os.environ["CLUSTER_ADDRESS"]
    Server.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = Server((address, int(os.environ["CLUSTER_PORT"])), Answer)
    print(f"serves {Answer.served.name} with a context of {Answer.served.context} tokens", flush=True)
    server.serve_forever()


main()
