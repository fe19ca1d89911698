//! Errors as answers of HTTP.

use agent::{Error, ErrorKind};
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Request that was not served.
pub(crate) enum Refused {
    /// The token is that of no user.
    User,
    /// There is no such conversation.
    Absent,
    Because(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Because(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let error = match self {
            Self::User => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
                return (StatusCode::UNAUTHORIZED, challenge, "a token of a user is needed\n")
                    .into_response();
            }
            Self::Absent => {
                Error::new(ErrorKind::NotFound, "there is no such conversation; a message begins it")
            }
            Self::Because(error) => error,
        };
        // As in `docs/operations.md`.
        let status = match error.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Deleted | ErrorKind::Expired { .. } => StatusCode::GONE,
            ErrorKind::Conflict { .. }
            | ErrorKind::Fenced { .. }
            | ErrorKind::Busy { .. }
            | ErrorKind::InvalidTransition { .. } => StatusCode::CONFLICT,
            ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            ErrorKind::LimitExceeded => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            ErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::Unavailable if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Provider => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        // The time after which a retry may have an effect, in seconds.
        let retry = error.is_retryable().then_some([(header::RETRY_AFTER, "1")]);
        // What the store says is for the operator: it may name files and servers.
        if status.is_server_error() {
            eprintln!("error: {error}");
            return (status, retry, Json(json!({"kind": error.kind().name()}))).into_response();
        }
        (status, retry, Json(json!({"kind": error.kind().name(), "text": error.to_string()}))).into_response()
    }
}
