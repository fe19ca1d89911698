//! Faults of rig's models as faults of a provider: kind, HTTP status, machine code and time for a retry, nothing else.

use std::time::Duration;

use agent_core::Error;
use agent_runtime::{FaultKind, ProviderFault};
use rig_core::ProviderError;
use rig_core::ProviderResponseError;

/// Maximum number of bytes of a machine code.
const CODE_MAX_BYTES: usize = 64;

/// Converts an error of rig. The text names no payload: rig's own texts may quote the body of an answer.
pub(crate) fn fault(provider: &str, error: &ProviderError) -> Error {
    if let Some(response) = error.provider_response() {
        return refused(provider, response);
    }
    let (kind, what) = match error {
        ProviderError::Http(_) => (FaultKind::Network, "the connection could not be made, or was lost"),
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
    let code = response.machine_code().filter(|code| is_code(code));
    let kind = kind(status, code.as_deref(), &response.body);
    let mut text = format!("provider {provider}: ");
    match status {
        Some(status) => text.push_str(&format!("HTTP status {status}")),
        None => text.push_str("an error in the answer"),
    }
    if let Some(code) = &code {
        text.push_str(&format!(", {code}"));
    }
    if let Some(remedy) = remedy(kind) {
        text.push_str(remedy);
    }
    ProviderFault::new(kind, text).with_retry_after(retry_after(response)).into()
}

/// Returns whether a text is a code, and not a sentence that may quote the request.
fn is_code(text: &str) -> bool {
    (1..=CODE_MAX_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

const fn remedy(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::Auth => Some("; check the key and what it may use"),
        FaultKind::ContextTooLong => Some("; the conversation is longer than the model's context"),
        FaultKind::ReplayRejected => Some("; an item of an earlier answer was not taken back"),
        _ => None,
    }
}

/// Returns the kind of a refusal. The body decides only between kinds that share a status.
fn kind(status: Option<u16>, code: Option<&str>, body: &str) -> FaultKind {
    let has = |words: &[&str]| words.iter().any(|word| body.contains(word));
    match (status, code.unwrap_or_default()) {
        (_, "context_length_exceeded" | "model_context_window_exceeded" | "request_too_large") => {
            FaultKind::ContextTooLong
        }
        (_, "invalid_encrypted_content" | "thinking_signature_invalid") => FaultKind::ReplayRejected,
        (_, "content_filter" | "content_policy_violation" | "moderation_blocked") => FaultKind::Filtered,
        (Some(401 | 403), _) | (None, "authentication_error" | "permission_error" | "invalid_api_key") => {
            FaultKind::Auth
        }
        (Some(429), _)
        | (None, "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" | "RESOURCE_EXHAUSTED") => {
            FaultKind::RateLimited
        }
        (Some(408 | 504), _) | (None, "timeout_error" | "DEADLINE_EXCEEDED") => FaultKind::Timeout,
        (Some(500..=599), _)
        | (None, "overloaded_error" | "api_error" | "server_error" | "UNAVAILABLE" | "INTERNAL") => {
            FaultKind::Overloaded
        }
        (Some(413), _) => FaultKind::ContextTooLong,
        (Some(400..=499), _) | (None, "invalid_request_error" | "INVALID_ARGUMENT") => {
            if has(&[
                "prompt is too long",
                "exceed context limit",
                "maximum context length",
                "exceeds the maximum number of tokens",
                "exceeds the context window",
                "context size",
            ]) {
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
