"""API calls below /v1 that engines can support. They are OpenAI's, Anthropic's, and Jina's /rerank."""

CHAT, COMPLETIONS, EMBEDDINGS, RERANK = "/chat/completions", "/completions", "/embeddings", "/rerank"
RESPONSES, RESPONSES_TOKENS = "/responses", "/responses/input_tokens"
MESSAGES, MESSAGES_TOKENS = "/messages", "/messages/count_tokens"
