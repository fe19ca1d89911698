//! Errors of the library as errors of the protocol. Each names its object, and says what to do.

use agent_client_protocol::{Error, ErrorCode};
use agent_core::{ErrorKind, SessionId, WriteOutcome};
use agent_runtime::{RunError, RunReport};
use serde_json::{Value, json};

/// Returns an error of the store or of the runtime.
///
/// The message is the text of the error; `data` has the member `kind` with the name of its kind, `sessionId` if it is
/// about a session, and `writeOutcome` if it is unknown whether a write was applied.
pub(crate) fn store(error: &agent_core::Error, session: Option<SessionId>) -> Error {
    let code = match error.kind() {
        ErrorKind::NotFound | ErrorKind::Deleted => ErrorCode::RESOURCE_NOT_FOUND,
        ErrorKind::InvalidInput | ErrorKind::LimitExceeded => ErrorCode::INVALID_PARAMS,
        ErrorKind::Busy { .. }
        | ErrorKind::Conflict { .. }
        | ErrorKind::Expired { .. }
        | ErrorKind::InvalidTransition { .. } => ErrorCode::INVALID_REQUEST,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    let mut data = data(session);
    data["kind"] = error.kind().name().into();
    if error.write_outcome() == WriteOutcome::Unknown {
        data["writeOutcome"] = "unknown".into();
    }
    Error::new(code, error.to_string()).data(data)
}

/// Returns a function that turns errors of the store into those of [`store`].
pub(crate) fn of_store(session: Option<SessionId>) -> impl Fn(agent_core::Error) -> Error + Copy {
    move |error| store(&error, session)
}

/// Returns the error of a run.
pub(crate) fn run(error: &RunError, session: SessionId) -> Error {
    match error {
        RunError::Store(error) => store(error, Some(session)),
        RunError::Failed(report) => failed(report),
        other => refused(session, other.to_string()),
    }
}

/// Returns the error of a turn whose model failed. The failure is stored, and the session stays usable.
pub(crate) fn failed(report: &RunReport) -> Error {
    let mut data = data(Some(report.session));
    data["kind"] = "provider".into();
    if let Some(run) = report.run {
        data["runId"] = run.to_string().into();
    }
    if let agent_runtime::RunOutcome::Failed(failure) = &report.outcome
        && let Some(fault) = &failure.fault
    {
        data["fault"] = fault.to_string().into();
    }
    let text = RunError::Failed(Box::new(report.clone())).to_string();
    Error::new(ErrorCode::INTERNAL_ERROR, text).data(data)
}

/// Returns the error of a request that the state of a session does not allow.
pub(crate) fn refused(session: SessionId, text: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_REQUEST, text).data(data(Some(session)))
}

/// Returns the error for a session that this connection has not opened.
pub(crate) fn not_open(session: SessionId) -> Error {
    let text = format!("session {session} is not open on this connection; load or resume it first");
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, text).data(data(Some(session)))
}

/// Returns whether an error says that a session does not exist, or is deleted.
pub(crate) fn is_absent(error: &Error) -> bool {
    error.code == ErrorCode::RESOURCE_NOT_FOUND
}

/// Returns the error of a request with a wrong parameter.
pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, text)
}

fn data(session: Option<SessionId>) -> Value {
    session.map_or_else(|| json!({}), |session| json!({ "sessionId": session.to_string() }))
}
