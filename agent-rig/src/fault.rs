//! Faults of rig's models as faults of a provider: kind, HTTP status, machine code and time for a retry, nothing else.

use std::time::Duration;

use agent_core::Error;
use agent_runtime::{FaultKind, ProviderFault};
use rig_core::ProviderError;
use rig_core::ProviderResponseError;

use crate::transport::Refused;

/// Maximum number of bytes of a body that is shown to a person as it is.
const WORDS_MAX_BYTES: usize = 1000;

/// Machine codes of the providers, from their pages on errors:
/// [Anthropic](https://docs.anthropic.com/en/api/errors), [OpenAI](https://platform.openai.com/docs/guides/error-codes),
/// [Google](https://cloud.google.com/apis/design/errors).
const CODES: &[&str] = &[
    "ABORTED",
    "ALREADY_EXISTS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "api_error",
    "authentication_error",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "content_filter",
    "content_policy_violation",
    "context_length_exceeded",
    "insufficient_quota",
    "internal_server_error",
    "invalid_api_key",
    "invalid_encrypted_content",
    "invalid_prompt",
    "invalid_request_error",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "model_context_window_exceeded",
    "model_not_found",
    "moderation_blocked",
    "not_found_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "rate_limit_exceeded",
    "request_too_large",
    "server_error",
    "string_above_max_length",
    "thinking_signature_invalid",
    "timeout_error",
    "unknown_parameter",
    "unsupported_parameter",
    "unsupported_value",
];

/// What the providers say, in small letters, of a request that is longer than the model's context.
const TOO_LONG: &[&str] = &[
    "context limit",
    "context size",
    "context window",
    "exceeded model token limit",
    "exceeds the limit of",
    "exceeds the maximum number of tokens",
    "input is too long",
    "input too long",
    "maximum context length",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "reduce the length of the messages",
    "too many tokens",
];

/// What they say of an account that has nothing left.
const NO_CREDIT: &[&str] = &["credit balance is too low", "insufficient balance", "insufficient_quota"];

/// Converts an error of rig. The text names no payload: rig's own texts may quote the body of an answer.
pub(crate) fn fault(provider: &str, error: &ProviderError) -> Error {
    if let Some(response) = error.provider_response() {
        return refused(provider, response);
    }
    let (kind, what) = match error {
        ProviderError::Http(error) => match Refused::of(error) {
            Some(refused) => (FaultKind::Other, &*refused.0),
            None => (FaultKind::Network, "the connection could not be made, or was lost"),
        },
        ProviderError::Truncated => (FaultKind::Network, "the answer ended before its end"),
        ProviderError::Request(_) | ProviderError::Url(_) => (
            FaultKind::InvalidRequest,
            "rig could not write the request; check the model's name, `max_tokens` and the tools",
        ),
        ProviderError::UnsupportedOption(_) => {
            (FaultKind::InvalidRequest, "the model does not take an option of the request")
        }
        ProviderError::Json(_) | ProviderError::Response(_) => {
            (FaultKind::Other, "the answer is not one that rig understands")
        }
        _ => (FaultKind::Other, "the provider reported a failure"),
    };
    ProviderFault::new(kind, format!("provider {provider}: {what}")).into()
}

/// Returns the fault of an answer that is a refusal of the request.
fn refused(provider: &str, response: &ProviderResponseError) -> Error {
    let status = response.status.map(|status| status.as_u16());
    let code = response.machine_code().and_then(|code| known(&code));
    let kind = kind(status, code, &response.body);
    let mut text = format!("provider {provider}: ");
    match status {
        Some(status) => text.push_str(&format!("HTTP status {status}")),
        None => text.push_str("an error in the answer"),
    }
    match status {
        Some(300..=399) => text
            .push_str(", which sends to another address; that is not followed: name it in the configuration"),
        Some(200..=299) => {
            text.push_str(" and no stream of events; check that the address is that of the API");
        }
        _ => {}
    }
    if let Some(code) = code {
        text.push_str(&format!(", {code}"));
    }
    if let Some(remedy) = remedy(kind) {
        text.push_str(remedy);
    }
    let fault = ProviderFault::new(kind, text).with_retry_after(retry_after(response));
    match words(&response.body) {
        Some(words) => fault.with_said(words).into(),
        None => fault.into(),
    }
}

/// Returns a refusal whose words are not known as that of a request that is too long.
pub(crate) fn too_long(mut fault: ProviderFault) -> ProviderFault {
    fault.kind = FaultKind::ContextTooLong;
    fault.text.push_str(remedy(fault.kind).unwrap_or_default());
    fault
}

/// Returns a machine code that is known. Another text may quote the request, or the key.
pub(crate) fn known(code: &str) -> Option<&'static str> {
    CODES.iter().find(|known| **known == code).copied()
}

/// Returns the provider's sentence in the body of a refusal, or the body if it is a short text.
fn words(body: &str) -> Option<String> {
    let Ok(read) = serde_json::from_str::<serde_json::Value>(body) else {
        let is_text = body.len() <= WORDS_MAX_BYTES && !body.trim_start().starts_with('<');
        return (is_text && !body.trim().is_empty()).then(|| body.trim().to_owned());
    };
    // Some wrap the error in a list.
    let error = read.get(0).unwrap_or(&read);
    let places =
        [error.pointer("/error/message"), error.get("message"), error.get("error"), error.get("detail")];
    places.into_iter().flatten().find_map(serde_json::Value::as_str).map(str::to_owned)
}

const fn remedy(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::Auth => Some("; check the key and what it may use"),
        FaultKind::Quota => Some("; the account has no quota or credit left: see its plan and its bills"),
        FaultKind::ContextTooLong => Some("; the conversation is longer than the model's context"),
        FaultKind::ReplayRejected => Some("; an item of an earlier answer was not taken back"),
        _ => None,
    }
}

/// Returns the kind of a refusal. The body decides only between kinds that share a status.
fn kind(status: Option<u16>, code: Option<&str>, body: &str) -> FaultKind {
    let body = body.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| body.contains(word));
    match (status, code.unwrap_or_default()) {
        (Some(402), _)
        | (_, "insufficient_quota" | "billing_error" | "billing_hard_limit_reached" | "billing_not_active") => {
            FaultKind::Quota
        }
        (Some(400 | 403 | 429), _) if has(NO_CREDIT) => FaultKind::Quota,
        (_, "context_length_exceeded" | "model_context_window_exceeded" | "request_too_large") => {
            FaultKind::ContextTooLong
        }
        (_, "invalid_encrypted_content" | "thinking_signature_invalid") => FaultKind::ReplayRejected,
        (_, "content_filter" | "content_policy_violation" | "moderation_blocked") => FaultKind::Filtered,
        (Some(401 | 403), _) | (None, "authentication_error" | "permission_error" | "invalid_api_key") => {
            FaultKind::Auth
        }
        (Some(429), _) | (None, "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED") => {
            FaultKind::RateLimited
        }
        (Some(408 | 504), _) | (None, "timeout_error" | "DEADLINE_EXCEEDED") => FaultKind::Timeout,
        (Some(500..=599), _)
        | (None, "overloaded_error" | "api_error" | "server_error" | "UNAVAILABLE" | "INTERNAL") => {
            FaultKind::Overloaded
        }
        (Some(413), _) => FaultKind::ContextTooLong,
        (Some(400..=499), _) | (None, "invalid_request_error" | "INVALID_ARGUMENT") => {
            if has(TOO_LONG) {
                FaultKind::ContextTooLong
            } else if has(&["signature", "encrypted_content", "encrypted content", "redacted_thinking"]) {
                FaultKind::ReplayRejected
            } else {
                FaultKind::InvalidRequest
            }
        }
        _ => FaultKind::Other,
    }
}

/// Returns the time after which the provider expects a retry, from the headers or from the details of Google's errors.
fn retry_after(response: &ProviderResponseError) -> Option<Duration> {
    let header = |name: &str| response.headers.as_ref()?.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds =
        header("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| header("retry-after")).or_else(|| {
            let body: serde_json::Value = serde_json::from_str(&response.body).ok()?;
            let details = body.get("error")?.get("details")?.as_array()?;
            let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
            delay.strip_suffix('s')?.parse().ok()
        })?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"error":{"type":"invalid_request_error","message":"SECRET-PROMPT is bad"}}"#;

    fn of(status: u16, body: &str) -> ProviderFault {
        let status = status.try_into().unwrap();
        let error = fault("anthropic", &ProviderError::from_http_response(status, body));
        ProviderFault::of(&error).unwrap().clone()
    }

    #[test]
    fn kinds_come_from_status_and_code() {
        let with = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"x"}}}}"#);
        let long = r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#;
        let signed =
            r#"{"error":{"message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#;
        for (status, body, kind) in [
            (401, "", FaultKind::Auth),
            (403, "", FaultKind::Auth),
            (429, "", FaultKind::RateLimited),
            (500, "", FaultKind::Overloaded),
            (529, "", FaultKind::Overloaded),
            (504, "", FaultKind::Timeout),
            (413, "", FaultKind::ContextTooLong),
            (400, BODY, FaultKind::InvalidRequest),
            (400, long, FaultKind::ContextTooLong),
            (400, &with("context_length_exceeded"), FaultKind::ContextTooLong),
            (400, signed, FaultKind::ReplayRejected),
            (400, &with("invalid_encrypted_content"), FaultKind::ReplayRejected),
            (400, &with("content_filter"), FaultKind::Filtered),
            (404, "", FaultKind::InvalidRequest),
        ] {
            assert_eq!(of(status, body).kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn texts_hold_codes_and_no_sentences() {
        assert_eq!(of(400, BODY).text, "provider anthropic: HTTP status 400, invalid_request_error");
        let sentence = r#"{"error":{"code":"the prompt SECRET-PROMPT"}}"#;
        assert_eq!(of(400, sentence).text, "provider anthropic: HTTP status 400");
    }

    #[test]
    fn retry_times_of_google_are_read() {
        let body = r#"{"error":{"code":429,"details":[{"@type":"x"},{"retryDelay":"34.074s"}]}}"#;
        assert_eq!(of(429, body).retry_after, Some(Duration::from_millis(34_074)));
        assert_eq!(of(429, "no JSON").retry_after, None);
    }
}
