//! Rules of the providers for a conversation, from their documentation; and the request of a client.

use std::collections::BTreeSet;

use agent_runtime::context::{AgentItem, Messages, ModelMessage, ModelToolResult};

type Checked = Result<(), String>;

/// All rules of all providers.
pub(crate) fn check(messages: &Messages) -> Checked {
    anthropic(messages).map_err(|broken| format!("Anthropic: {broken}"))?;
    openai(messages).map_err(|broken| format!("OpenAI: {broken}"))?;
    gemini(messages).map_err(|broken| format!("Gemini: {broken}"))
}

/// A part of a message of any provider.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Call(String),
    Result(String),
}

/// Turns of a user and a model in alternation: what is said by the same side in a row is one turn, what the system says
/// goes elsewhere.
fn turns(messages: &Messages) -> Vec<(&'static str, Vec<Part>)> {
    let mut turns: Vec<(&str, Vec<Part>)> = Vec::new();
    for message in messages {
        let (role, parts) = match message {
            ModelMessage::System(_) => continue,
            ModelMessage::Summary(_) | ModelMessage::User(_) => {
                ("user", vec![Part::Text(message.text().into_owned())])
            }
            ModelMessage::Agent(texts) => {
                let text = texts.text().into_owned();
                let text = (!text.is_empty()).then_some(Part::Text(text));
                let calls = texts.calls().map(|call| Part::Call(call.call.to_string()));
                ("model", text.into_iter().chain(calls).collect())
            }
            ModelMessage::ToolResults(results) => {
                ("user", results.iter().map(|result| Part::Result(result.call.to_string())).collect())
            }
            other => panic!("{other:?}"),
        };
        match turns.last_mut() {
            // A model that says something after its calls does so in a turn of its own.
            Some((last, texts)) if *last == role => texts.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    turns
}

fn ids(parts: &[Part], call: bool) -> Vec<&String> {
    let mut found = Vec::new();
    for part in parts {
        match part {
            Part::Call(id) if call => found.push(id),
            Part::Result(id) if !call => found.push(id),
            _ => {}
        }
    }
    found
}

/// The first message is the user's. A message with `tool_use` is followed by one of the user that begins with exactly its
/// `tool_result`s. Ids are unique, of letters, digits, `_` and `-`. No text is empty.
pub(crate) fn anthropic(messages: &Messages) -> Checked {
    let turns = turns(messages);
    if turns.first().is_some_and(|(role, _)| *role != "user") {
        return Err("the first message is not the user's".to_owned());
    }
    let mut used = BTreeSet::new();
    for (at, (_, parts)) in turns.iter().enumerate() {
        if parts.is_empty() || parts.contains(&Part::Text(String::new())) {
            return Err(format!("message {at} is empty"));
        }
        let calls = ids(parts, true);
        for id in &calls {
            let fits = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if !fits || !used.insert((*id).clone()) {
                return Err(format!("tool_use {id} is no id, or used twice"));
            }
        }
        let results = turns.get(at + 1).map(|(_, parts)| parts.as_slice()).unwrap_or_default();
        let begin = &results[..results.len().min(calls.len())];
        if ids(begin, false).into_iter().collect::<BTreeSet<_>>() != calls.iter().copied().collect() {
            return Err(format!("the tool_use of message {at} have no tool_result right behind them"));
        }
        if ids(results, false).len() != calls.len() {
            return Err(format!("tool_result without tool_use after message {at}"));
        }
    }
    let first = turns.first().map(|(_, parts)| ids(parts, false).len());
    if first.is_some_and(|results| results > 0) {
        return Err("tool_result in the first message".to_owned());
    }
    Ok(())
}

/// An assistant's message with `tool_calls` is followed by one `tool` message for each, and there are no others. Ids have
/// at most 40 characters. An assistant's message has text or calls.
pub(crate) fn openai(messages: &Messages) -> Checked {
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            ModelMessage::ToolResults(results) => {
                for result in results {
                    if !open.remove(result.call.as_str()) {
                        return Err(format!("message {at}: tool {} answers no call", result.call));
                    }
                }
                if !open.is_empty() {
                    return Err(format!("message {at}: {open:?} have no answer"));
                }
            }
            _ if !open.is_empty() => {
                return Err(format!("message {at} comes before the answers of {open:?}"));
            }
            ModelMessage::Agent(texts) => {
                if texts.text().is_empty() && texts.calls().next().is_none() {
                    return Err(format!("message {at} has neither text nor calls"));
                }
                for call in texts.calls() {
                    if call.call.as_str().len() > 40 || !open.insert(call.call.to_string()) {
                        return Err(format!("message {at}: {} is too long, or there twice", call.call));
                    }
                }
            }
            _ => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no answer")) }
}

/// The first turn is the user's, and turns alternate. A turn with function calls comes right behind one of the user, and
/// is followed by one with as many responses, in the same order.
pub(crate) fn gemini(messages: &Messages) -> Checked {
    let turns = turns(messages);
    if turns.first().is_some_and(|(role, _)| *role != "user") {
        return Err("the first turn is not the user's".to_owned());
    }
    for (at, pair) in turns.windows(2).enumerate() {
        let [(role, calls), (next, responses)] = pair else { continue };
        if role == next {
            return Err(format!("turns {at} and {} are of the same side", at + 1));
        }
        if *role == "model" && ids(calls, true) != ids(responses, false) {
            return Err(format!("turn {at} has {} calls, not answered one by one", ids(calls, true).len()));
        }
    }
    match turns.last() {
        Some((_, parts)) if !ids(parts, true).is_empty() => Err("the last turn calls functions".to_owned()),
        _ => Ok(()),
    }
}

/// The rules refuse what the providers refuse: a rule that lets everything through would prove nothing.
#[test]
fn provider_rules_reject_invalid_conversations() {
    use agent_core::event::{ToolOutcome, ToolUse};
    use agent_core::json::RawJson;
    let call = |id: &str| ToolUse::new(id.parse().unwrap(), "look", RawJson::empty_object());
    let agent = |text: &str, ids: &[&str]| {
        let calls = ids.iter().map(|id| AgentItem::call(call(id)));
        ModelMessage::agent([AgentItem::text(text)].into_iter().chain(calls).collect::<Vec<_>>())
    };
    let results = |ids: &[&str]| {
        let result = |id: &&str| ModelToolResult::new(id.parse().unwrap(), ToolOutcome::Ok, "{}");
        ModelMessage::ToolResults(ids.iter().map(result).collect())
    };
    let user = || ModelMessage::user("hello");
    assert_eq!(
        check(&[user(), agent("", &["a", "b"]), results(&["a", "b"]), agent("done", &[])].into()),
        Ok(())
    );
    assert_eq!(check(&[ModelMessage::Summary("before".to_owned()), agent("done", &[])].into()), Ok(()));
    let all: [(&str, Vec<ModelMessage>, [bool; 3]); 9] = [
        ("starts with the agent", vec![agent("hi", &[])], [true, false, true]),
        ("a call without a result", vec![user(), agent("", &["a"])], [true, true, true]),
        ("a result too few", vec![user(), agent("", &["a", "b"]), results(&["a"])], [true, true, true]),
        ("a result too many", vec![user(), agent("", &["a"]), results(&["a", "b"])], [true, true, true]),
        ("a result of another call", vec![user(), agent("", &["a"]), results(&["b"])], [true, true, true]),
        ("a result alone", vec![user(), results(&["a"])], [true, true, false]),
        (
            "something in between",
            vec![user(), agent("", &["a"]), user(), results(&["a"])],
            [true, true, false],
        ),
        (
            "an id twice",
            vec![user(), agent("", &["a"]), results(&["a"]), agent("", &["a"]), results(&["a"])],
            [true, false, false],
        ),
        ("nothing said", vec![user(), agent("", &[])], [true, true, false]),
    ];
    for (what, messages, refused) in all {
        let messages = messages.into();
        let found =
            [anthropic(&messages), openai(&messages), gemini(&messages)].map(|checked| checked.is_err());
        assert_eq!(found, refused, "{what}");
    }
}
