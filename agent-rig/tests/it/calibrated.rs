//! Rules of the checking servers against recorded conversations. They accept every request that a provider accepted,
//! and refuse those that it refused for one of these rules.

use std::collections::BTreeMap;

use model_servers::{Provider, Request, Rule, Wire};
use serde_json::Value;

use crate::recorded::{Exchange, exchanges};

fn wire(uri: &str) -> Option<Wire> {
    let path = uri.split('?').next()?;
    Some(match path {
        _ if path.ends_with("/v1/messages") => Wire::Anthropic,
        _ if path.ends_with("/v1/responses") => Wire::Responses,
        _ if path.ends_with("enerateContent") => Wire::Gemini,
        _ if path.ends_with("/chat/completions") => Wire::Chat,
        _ => return None,
    })
}

fn check(exchange: &Exchange, wire: Wire) -> Result<(), model_servers::Refusal> {
    let request = Request::new(&exchange.uri, &exchange.body);
    // Only the real provider knows its signatures.
    Provider::new(wire).trusting().check(&request).map(drop)
}

/// Whether the provider holds the earlier part of the conversation.
fn is_continued(body: &Value) -> bool {
    body["previous_response_id"].is_string() || !body["conversation"].is_null() || body["background"] == true
}

#[test]
fn recorded_conversations_are_accepted() {
    let (mut accepted, mut wrong) = (BTreeMap::new(), Vec::new());
    for exchange in exchanges().iter().filter(|exchange| exchange.status == 200 && exchange.body.is_object())
    {
        let Some(wire) = wire(&exchange.uri).filter(|_| !is_continued(&exchange.body)) else { continue };
        match check(exchange, wire) {
            Ok(()) => *accepted.entry(wire).or_insert(0) += 1,
            Err(refusal) => wrong.push(format!("{}: {refusal}", exchange.name)),
        }
    }
    println!("accepted: {accepted:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recorded_refusals_are_refused_by_their_rule() {
    let mut refused = 0;
    for exchange in exchanges().iter().filter(|exchange| exchange.status == 400) {
        let text = exchange.answer["error"]["message"].as_str().unwrap_or_default();
        // Others are about options of a request, of which the servers know nothing.
        if !text.contains("without its required following item") {
            continue;
        }
        let refusal = check(exchange, Wire::Responses).unwrap_err();
        assert_eq!(refusal.rule, Rule::FollowingItem, "{}", exchange.name);
        assert_eq!(refusal.message, text, "{}", exchange.name);
        refused += 1;
    }
    println!("refused: {refused}");
    assert!(refused > 0 || exchanges().is_empty());
}
