/** Conversation with a model, with its latency and speed. */

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Problem } from "../../lib/api";
import { copyText } from "../../lib/export";
import { formatCompact, formatInteger, formatElapsed, formatSeconds } from "../../lib/format";
import { Button, TextButton } from "../../ui/button";
import { now } from "../../ui/page";
import { showToast } from "../../ui/toast";
import { Answer, requestAnswer, type RequestOptions, type Message } from "./model/playground";
import { hasScope } from "./model/services";

/** Interval in milliseconds between redraws of a streamed answer. */
const DRAW_MS = 100;
/** Default maximum number of tokens of an answer. */
const DEFAULT_TOKENS = "512";

interface Turn {
  question: string;
  answer: Answer;
}

export function Playground({ model }: { model: string }) {
  if (!hasScope("infer"))
    return (
      <section class="part" aria-label="Playground">
        <h3>Playground</h3>
        <p class="soft">
          Sending messages requires a token with the scope infer: <code>cluster token create NAME --scopes infer</code>
        </p>
      </section>
    );
  return <Conversation model={model} key={model} />;
}

function Conversation({ model }: { model: string }) {
  const { turns, drawn, ask, stop, clear } = useConversation(model);
  const busy = turns.some(({ answer }) => !answer.hasEnded);
  return (
    <section class="part stack playground" aria-label="Playground">
      <div class="row">
        <h3 class="grow">Playground</h3>
        {turns.length > 0 && (
          <Button disabled={busy} onClick={clear}>
            Clear
          </Button>
        )}
      </div>
      {turns.length > 0 && <Turns turns={turns} model={model} drawn={drawn} />}
      <QuestionForm busy={busy} onAsk={ask} onStop={stop} />
    </section>
  );
}

function useConversation(model: string) {
  const turns = useSignal<readonly Turn[]>([]);
  const redraws = useSignal(0);
  const control = useRef<AbortController | undefined>(undefined);
  const timer = useRef(0);
  useEffect(
    () => () => {
      control.current?.abort();
      clearTimeout(timer.current);
    },
    [],
  );
  const draw = () => {
    timer.current ||= window.setTimeout(() => {
      timer.current = 0;
      redraws.value += 1;
    }, DRAW_MS);
  };
  const ask = (question: string, choices: RequestOptions) => {
    const previous = turns.peek().filter(({ answer }) => answer.content);
    const answer = new Answer(performance.now());
    turns.value = [...turns.peek(), { question, answer }];
    const own = new AbortController();
    control.current = own;
    requestAnswer(model, createMessages(previous, question), choices, answer, draw, own.signal).catch(
      (error: unknown) => {
        if (own.signal.aborted) answer.end("stopped");
        else answer.end("failed", error instanceof Problem ? error.detail : "the connection was lost");
        draw();
      },
    );
  };
  const stop = () => {
    control.current?.abort();
    turns.peek().at(-1)?.answer.end("stopped");
    redraws.value += 1;
  };
  const clear = () => (turns.value = []);
  return { turns: turns.value, drawn: redraws.value, ask, stop, clear };
}

function createMessages(turns: readonly Turn[], question: string): Message[] {
  const messages = turns.flatMap((turn): Message[] => [
    { role: "user", content: turn.question },
    { role: "assistant", content: turn.answer.content },
  ]);
  return [...messages, { role: "user", content: question }];
}

function Turns({ turns, model, drawn }: { turns: readonly Turn[]; model: string; drawn: number }) {
  const box = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  useLayoutEffect(() => {
    if (isFollowing.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [drawn, turns]);
  const onScroll = ({ currentTarget: at }: { currentTarget: HTMLDivElement }) => {
    // Scrolling up stops following the answer.
    isFollowing.current = at.scrollTop + at.clientHeight >= at.scrollHeight - 24;
  };
  return (
    <div class="talk" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label="Talk" aria-live="off">
      {turns.map(({ question, answer }, index) => (
        <article key={index} aria-label={`Question ${index + 1}`}>
          <h4>You</h4>
          <p class="said">{question}</p>
          <h4>{model}</h4>
          <AnswerText answer={answer} />
          <AnswerMeasurements answer={answer} />
        </article>
      ))}
    </div>
  );
}

function AnswerText({ answer: { text } }: { answer: Answer }) {
  return (
    <div class="said answer">
      {text.pieces.map((piece, index) => (
        <p key={index}>{piece}</p>
      ))}
      {text.last && <p>{text.last}</p>}
    </div>
  );
}

function AnswerMeasurements({ answer }: { answer: Answer }) {
  const { state, problem, firstSeconds: first, tokensPerSecond: speed, tokens, frames, isCut: cut, content } = answer;
  const waited = state === "asking" ? Math.max(0, (performance.now() - answer.began) / 1000) : 0;
  return (
    <div class="row small">
      <span role="status" class={state === "failed" ? "bad" : "soft"}>
        {state === "asking" && now.value > 0 && `Waiting for the first token, ${formatElapsed(waited)}`}
        {state === "answering" && "Answering"}
        {state === "done" &&
          (cut ? "Stopped at the maximum number of tokens" : content ? "Answered" : "Answered without text")}
        {state === "stopped" && "Stopped"}
        {state === "failed" && `Failed: ${problem}`}
      </span>
      {first !== undefined && <span class="num">first token {formatSeconds(first)}</span>}
      {speed !== undefined && <span class="num">{formatCompact(speed)} tokens/s</span>}
      {frames > 0 && (
        <span class="num soft">
          {tokens === undefined ? `about ${formatInteger(frames)}` : formatInteger(tokens)} token
          {(tokens ?? frames) === 1 ? "" : "s"}
        </span>
      )}
      {answer.hasEnded && content && <TextButton onClick={() => void copyAnswer(content)}>Copy</TextButton>}
    </div>
  );
}

async function copyAnswer(text: string): Promise<void> {
  showToast((await copyText(text)) ? "Copied" : "The browser does not allow this page to copy");
}

/** Parse a number within bounds; undefined for an empty text, NaN for an invalid one. */
function parseBounded(text: string, min: number, max: number): number | undefined {
  if (!text.trim()) return undefined;
  const value = Number(text);
  return value >= min && value <= max ? value : Number.NaN;
}

interface QuestionProps {
  busy: boolean;
  onAsk: (question: string, choices: RequestOptions) => void;
  onStop: () => void;
}

function QuestionForm({ busy, onAsk, onStop }: QuestionProps) {
  const text = useSignal("");
  const tokens = useSignal(DEFAULT_TOKENS);
  const temperature = useSignal("");
  const [maxTokens, temperatureValue] = [
    parseBounded(tokens.value, 1, 1_000_000),
    parseBounded(temperature.value, 0, 2),
  ];
  const errorText =
    maxTokens !== undefined && !Number.isInteger(maxTokens)
      ? "Maximum tokens: a whole number of at least 1"
      : Number.isNaN(temperatureValue)
        ? "Temperature: a number from 0 to 2"
        : "";
  const send = () => {
    if (busy || errorText || !text.value.trim()) return;
    onAsk(text.value, {
      ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
      ...(temperatureValue === undefined ? {} : { temperature: temperatureValue }),
    });
    text.value = "";
  };
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <label for="question">Message</label>
      <textarea
        id="question"
        rows={3}
        value={text.value}
        aria-describedby="question-hint"
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          send();
        }}
      />
      <div class="row">
        <SmallField name="maximum tokens" value={tokens.value} onType={(typed) => (tokens.value = typed)} />
        <SmallField name="temperature" value={temperature.value} onType={(typed) => (temperature.value = typed)} />
        <span class="grow small soft" id="question-hint">
          {errorText ? <span class="bad">{errorText}</span> : "Ctrl+Enter sends. The chat is not stored."}
        </span>
        {busy ? (
          <Button class="danger" onClick={onStop}>
            Stop
          </Button>
        ) : (
          <button type="submit" class="primary" disabled={Boolean(errorText) || !text.value.trim()}>
            Send
          </button>
        )}
      </div>
    </form>
  );
}

function SmallField({ name, value, onType }: { name: string; value: string; onType: (value: string) => void }) {
  return (
    <label class="row small">
      {name}
      <input
        class="num"
        inputMode="decimal"
        autocomplete="off"
        size={6}
        value={value}
        onInput={(event) => onType(event.currentTarget.value)}
      />
    </label>
  );
}
