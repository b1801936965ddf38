"""Calls below /v1 that engines answer and the gateway passes on: OpenAI's, Anthropic's, and Jina's /rerank."""

CHAT, COMPLETIONS, EMBEDDINGS, RERANK = "/chat/completions", "/completions", "/embeddings", "/rerank"
RESPONSES, RESPONSES_TOKENS = "/responses", "/responses/input_tokens"
MESSAGES, MESSAGES_TOKENS = "/messages", "/messages/count_tokens"
