"""Conversations of the providers' own clients with servers that check: two turns with tools, then one that is refused."""

import json
import sys

import anthropic
import openai
from google import genai
from google.genai import types

claude_url, responses_url, gemini_url, chat_url = sys.argv[1:]
SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}


def refused(kind, words, ask):
    try:
        ask()
    except kind as error:
        assert words in str(error), str(error)
        return
    raise AssertionError(f"not refused: {words}")


def claude():
    client = anthropic.Anthropic(api_key="key", base_url=claude_url, max_retries=0)
    messages = [{"role": "user", "content": "Hello"}]

    def ask():
        tools = [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]
        with client.messages.stream(
            model="claude-opus-5-5", max_tokens=100, messages=messages, tools=tools
        ) as stream:
            return stream.get_final_message()

    first = ask()
    assert [block.type for block in first.content] == ["thinking", "text", "thinking", "tool_use", "tool_use"], first
    assert first.content[0].thinking == "They ask." and first.content[1].text == "I look. 한🙂", first
    assert first.content[3].input == {"at": 1} and first.stop_reason == "tool_use", first
    messages.append({"role": "assistant", "content": first.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "done"}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
    second = ask()
    assert second.content[0].text == "Done." and second.stop_reason == "end_turn", second
    assert second.usage.output_tokens == 30, second
    messages[0]["content"] = "Hallo"
    refused(anthropic.BadRequestError, "Invalid `signature` in `thinking` block", ask)


def responses():
    client = openai.OpenAI(api_key="key", base_url=responses_url, max_retries=0)
    items = [{"role": "user", "content": "Hello"}]

    def ask():
        stream = client.responses.create(
            model="gpt-5.5",
            input=items,
            store=False,
            stream=True,
            include=["reasoning.encrypted_content"],
            tools=[{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
        )
        text = ""
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
            last = event
        assert last.type == "response.completed", last
        assert text == last.response.output_text, text
        return last.response

    first = ask()
    assert [item.type for item in first.output] == ["reasoning", "message", "reasoning", "function_call", "function_call"], first
    assert first.output_text == "I look. 한🙂" and json.loads(first.output[3].arguments) == {"at": 1}, first
    items.extend(first.output)
    for item in first.output:
        if item.type == "function_call":
            items.append({"type": "function_call_output", "call_id": item.call_id, "output": "done"})
    second = ask()
    assert second.output_text == "Done." and second.usage.output_tokens == 5, second
    del items[2]
    refused(openai.BadRequestError, "without its required following item", ask)


def gemini():
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=gemini_url))
    contents = [types.Content(role="user", parts=[types.Part(text="Hello")])]
    look = types.FunctionDeclaration(name="look", description="Looks.", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[look])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )

    def ask():
        parts = []
        for chunk in client.models.generate_content_stream(model="gemini-3-pro-preview", contents=contents, config=config):
            parts += [part for part in chunk.candidates[0].content.parts if part.text != ""]
            last = chunk
        assert last.candidates[0].finish_reason == types.FinishReason.STOP, last
        assert last.usage_metadata.thoughts_token_count == 3, last
        return parts

    first = ask()
    assert [bool(part.function_call) for part in first] == [False, False, False, True, True], first
    assert first[0].thought and first[1].text == "I look. 한🙂" and first[3].function_call.args == {"at": 1}, first
    assert first[3].thought_signature and not first[4].thought_signature, first
    contents.append(types.Content(role="model", parts=first))
    results = [
        types.Part(function_response=types.FunctionResponse(id=part.function_call.id, name="look", response={"output": "done"}))
        for part in first
        if part.function_call
    ]
    contents.append(types.Content(role="user", parts=results))
    assert ask()[-1].text == "Done."
    first[3].thought_signature = None
    refused(genai.errors.ClientError, "missing a thought_signature", ask)


def chat():
    client = openai.OpenAI(api_key="key", base_url=chat_url, max_retries=0)
    messages = [{"role": "user", "content": "Hello"}]
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]

    def ask():
        with client.chat.completions.stream(
            model="gpt-4o", messages=messages, tools=tools, stream_options={"include_usage": True}
        ) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion()

    first = ask()
    message = first.choices[0].message
    assert message.content == "I look. 한🙂" and first.choices[0].finish_reason == "tool_calls", first
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"at": 1}, {"at": 2}], first
    calls = [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls]
    for call in calls:
        call["function"] = {name: call["function"][name] for name in ("name", "arguments")}
    messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
    messages.extend({"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls)
    second = ask()
    assert second.choices[0].message.content == "Done." and second.usage.completion_tokens == 5, second
    del messages[-1]
    refused(openai.BadRequestError, "must be followed by tool messages", ask)


for conversation in (claude, responses, gemini, chat):
    conversation()
    print("held:", conversation.__name__, flush=True)
