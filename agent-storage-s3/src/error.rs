//! Maps errors of the object store to errors of this library. No other module does this.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use agent_core::{Error, ErrorKind};

/// Limit on the bytes of an error text of the server or the client that are shown.
const SHOWN_MAX: usize = 500;

/// Known effect of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The object does not exist.
    Absent,
    /// The request had no effect, because a precondition did not hold (412, 304).
    Refused,
    /// The request had no effect, because another request was using the same object (409).
    Collided,
    /// The request had no effect, because access was denied. Credentials may have expired; new ones are fetched.
    Denied,
    /// The request had no effect, and a retry would not help.
    Wrong,
    /// The effect is unknown: a failing server, a broken connection, a truncated answer.
    Doubt,
}

/// Returns the known effect of a request for which the client reports this error.
pub(crate) fn fate(error: &object_store::Error) -> Fate {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } if is_without_bucket(error) => Fate::Wrong,
        E::NotFound { .. } => Fate::Absent,
        E::Precondition { .. } | E::NotModified { .. } => Fate::Refused,
        // The client distinguishes a 412 from a 409 only by the wrapped error: that of S3 by its kind, those of the
        // others by their text. Azure answers 409 for an object that exists, and the writer that collided reads it too.
        E::AlreadyExists { source, .. } => match source.downcast_ref::<E>() {
            Some(E::Precondition { .. } | E::NotModified { .. }) => Fate::Refused,
            _ if is_status(error, "412") => Fate::Refused,
            _ => Fate::Collided,
        },
        _ if is_denied(error) => Fate::Denied,
        E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } => Fate::Wrong,
        E::UnknownConfigurationKey { .. } => Fate::Wrong,
        E::Generic { .. } if is_elsewhere(error) || is_without_bucket(error) => Fate::Wrong,
        _ => Fate::Doubt,
    }
}

/// Returns whether the bucket is missing. Servers answer 404 for that too, and an object must not seem absent then.
fn is_without_bucket(error: &object_store::Error) -> bool {
    has_code(error, &["NoSuchBucket", "ContainerNotFound"])
}

/// Returns whether the server answered with this status. Of lists, and of GCS and Azure, the client tells it by its
/// text only.
fn is_status(error: &object_store::Error, status: &str) -> bool {
    error.to_string().contains(&format!("status code: {status} "))
}

/// Codes with which servers refuse temporary credentials that have ended, some of them with the status 400.
const ENDED: [&str; 4] = ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"];
/// Code of a session token that is not one of the server's, or does not belong to the key; also with the status 400.
const INVALID_TOKEN: &str = "InvalidToken";

/// Returns whether the server answered with one of these codes.
fn has_code(error: &object_store::Error, codes: &[&str]) -> bool {
    element(&error.to_string(), "Code").is_some_and(|code| codes.contains(&&*code))
}

/// Returns whether access was denied.
fn is_denied(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    if has_code(error, &ENDED) || has_code(error, &[INVALID_TOKEN]) {
        return true;
    }
    match error {
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => true,
        E::Generic { .. } => is_status(error, "401") || is_status(error, "403"),
        _ => false,
    }
}

/// Returns whether the requested range begins after the end of the object (416).
pub(crate) fn is_beyond(error: &object_store::Error) -> bool {
    let text = error.to_string();
    text.contains("InvalidRange") || text.contains("Range Not Satisfiable")
}

/// Returns whether the server said that the bucket is in another region, by a redirect or because the request is signed for
/// a wrong one; a retry would not help.
fn is_elsewhere(error: &object_store::Error) -> bool {
    error.to_string().contains("redirect without LOCATION")
        || has_code(error, &["AuthorizationHeaderMalformed", "PermanentRedirect"])
}

/// What the client said about a failed request, once and without markup: its own errors repeat the text of each of
/// their causes, and contain the whole document that the server answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cause {
    text: String,
    /// Whether the bucket is missing.
    is_without_bucket: bool,
}

impl Cause {
    fn of(error: &object_store::Error) -> Self {
        Self { text: Self::text(error), is_without_bucket: is_without_bucket(error) }
    }

    fn text(error: &object_store::Error) -> String {
        let text = error.to_string();
        let Some(code) = element(&text, "Code") else { return shortened(&without_repeats(error)) };
        let status = text.split_once("status code: ").and_then(|(_, rest)| rest.split_once(": "));
        let mut answered = format!("the server answered {code}");
        if let Some((status, _)) = status {
            answered = format!("the server answered {status}, {code}");
        }
        if let Some(message) = element(&text, "Message").filter(|message| !message.is_empty()) {
            answered = format!("{answered}: {message}");
        }
        shortened(&answered)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Cause {}

/// Returns the text of the first element with this name in a document of the server.
fn element<'a>(text: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    let inside = inside.trim();
    if !inside.contains('&') {
        return Some(inside.into());
    }
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    Some(entities.iter().fold(inside.to_owned(), |text, (entity, plain)| text.replace(entity, plain)).into())
}

/// Returns an error and its causes, except those that the text has already.
fn without_repeats(error: &dyn StdError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// Returns a text in one line, and its beginning only if it is long, such as the page of a gateway.
fn shortened(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().find(|(at, _)| *at >= SHOWN_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Error for a bucket that does not exist. An object or a session is not proven absent by that: the bucket may have been
/// removed, or come back.
fn without_bucket(doing: &str, place: &str) -> String {
    format!("cannot {doing}: there is no such bucket: {place}; restore or create it, or check the address")
}

/// Error for a list that was answered with 404, which only a missing bucket explains.
pub(crate) fn no_bucket_to_list(place: &str) -> Error {
    let cause = Cause { text: "the server answered 404 to a list".to_owned(), is_without_bucket: true };
    Error::unavailable(without_bucket("list objects", place)).with_source(cause)
}

/// Returns the error for a store that cannot be opened: without its bucket, there is no store.
pub(crate) fn at_opening(error: Error) -> Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Cause>()).cloned();
    match cause.filter(|cause| cause.is_without_bucket) {
        Some(cause) => Error::not_found(error.to_string()).with_source(cause),
        None => error,
    }
}

/// Error for a failure that the client reports at this place: `cannot <doing>: <what to do>`.
pub(crate) fn failed(doing: &str, place: &str, source: &object_store::Error) -> Error {
    use object_store::Error as E;
    let text = source.to_string();
    let (kind, remedy) = match source {
        E::NotFound { .. } | E::Generic { .. } if is_without_bucket(source) => {
            let text = without_bucket(doing, place);
            return Error::unavailable(text).with_source(Cause::of(source));
        }
        _ if is_denied(source) && text.contains("Quota") => {
            (ErrorKind::Full, "the quota is used up; make room, then try again")
        }
        _ if has_code(source, &ENDED) => (
            ErrorKind::Denied,
            "the temporary credentials have ended; get new ones (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
             AWS_SESSION_TOKEN together), then start again",
        ),
        _ if has_code(source, &[INVALID_TOKEN]) => (
            ErrorKind::Denied,
            "the session token is not valid; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the \
             same credentials, then start again",
        ),
        _ if is_denied(source) => {
            (ErrorKind::Denied, "access was denied; check the credentials and their rights")
        }
        E::Generic { .. } if is_elsewhere(source) => {
            (ErrorKind::InvalidInput, "the bucket is in another region; name it (AWS_REGION, or ?region=)")
        }
        E::InvalidPath { source: wrong } => {
            let text = shortened(&wrong.to_string());
            return Error::corrupt(format!(
                "cannot {doing}: an object below the store's prefix has a key that no store writes, and no list passes over it: \
                 {text}; delete that object"
            ))
            .with_source(Cause::of(source));
        }
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "the server cannot do this; use one that supports preconditions")
        }
        _ => {
            tracing::debug!(error = %source, "a request failed");
            let text = format!(
                "cannot {doing}: the server or the way to it failed: {place}; try again, and check the address and the network"
            );
            return Error::unavailable(text).with_source(Cause::of(source));
        }
    };
    tracing::debug!(error = %source, "a request failed");
    Error::new(kind, format!("cannot {doing}: {remedy}")).with_source(Cause::of(source))
}

/// Error for a server that did not answer in time.
pub(crate) fn late(doing: &str, place: &str) -> Error {
    Error::unavailable(format!(
        "cannot {doing}: {place} did not answer in time; try again, and check the address and the network"
    ))
    .timed_out()
}

/// Error for damaged stored bytes.
pub(crate) fn corrupt(object: &str, what: &str) -> Error {
    Error::corrupt(format!("{object} {what}; nothing was overwritten; repair it or restore it from a backup"))
}

/// Returns whether an error concerns one object only, so that a list reports it and continues.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use object_store::Error as E;

    use super::*;

    /// A range after the end of its object is not a failure of the server.
    #[test]
    fn range_beyond_the_end_is_not_a_server_error() {
        assert!(is_beyond(&generic("status code: 416 Range Not Satisfiable")));
        assert!(is_beyond(&generic("<Code>InvalidRange</Code>")));
        assert!(!is_beyond(&generic("status code: 503 Service Unavailable")));
    }

    fn generic(text: &str) -> E {
        E::Generic { store: "S3", source: text.into() }
    }

    /// Of a document only the code and the message are shown, and nothing twice.
    #[test]
    fn cause_shows_code_and_message_once() {
        let xml = "status code: 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>No &quot;a&quot; \
                   &amp; b</Message><RequestId>1</RequestId></Error>";
        let denied = E::PermissionDenied { path: "a".into(), source: xml.into() };
        let answered = "the server answered 403 Forbidden, AccessDenied: No \"a\" & b";
        assert_eq!(Cause::of(&denied).to_string(), answered);
        let error = failed("read an object", "s3://bucket at AWS", &denied);
        let source = error.source().unwrap();
        assert_eq!((source.to_string().as_str(), source.source().is_none()), (answered, true));
        // Without a code, the text of the client, and of a page the beginning.
        let inner = std::io::Error::other("connection refused");
        let answered = Cause::of(&E::Generic { store: "S3", source: Box::new(inner) }).to_string();
        assert_eq!(answered, "Generic S3 error: connection refused");
        let page =
            Cause::of(&generic(&format!("status code: 502: <html>\n {}", "é".repeat(400)))).to_string();
        assert!(page.len() < SHOWN_MAX + 10 && page.ends_with('…') && !page.contains('\n'), "{page}");
    }

    /// A missing bucket is not an absent object, and permanent failures are not retried.
    #[test]
    fn s3_errors_map_to_the_right_kind() {
        let absent = |text: &str| E::NotFound { path: "a".into(), source: text.into() };
        let exists = |source| E::AlreadyExists { path: "a".into(), source };
        let refused = E::Precondition { path: "a".into(), source: "412".into() };
        let cases = [
            (absent("<Code>NoSuchKey</Code>"), Fate::Absent, ErrorKind::Unavailable),
            (absent("<Code>NoSuchBucket</Code>"), Fate::Wrong, ErrorKind::Unavailable),
            (exists(Box::new(refused)), Fate::Refused, ErrorKind::Unavailable),
            (exists("409".into()), Fate::Collided, ErrorKind::Unavailable),
            // Of Google and Azure, and of lists, the client has the status in its text only.
            (exists("status code: 412 Precondition Failed: ".into()), Fate::Refused, ErrorKind::Unavailable),
            (absent("<Code>ContainerNotFound</Code>"), Fate::Wrong, ErrorKind::Unavailable),
            (
                generic("status code: 404 Not Found: <Code>NoSuchBucket</Code>"),
                Fate::Wrong,
                ErrorKind::Unavailable,
            ),
            (generic("status code: 403 Forbidden: "), Fate::Denied, ErrorKind::Denied),
            (generic("status code: 401 Unauthorized: "), Fate::Denied, ErrorKind::Denied),
            (
                generic("status code: 400 Bad Request: <Code>ExpiredToken</Code>"),
                Fate::Denied,
                ErrorKind::Denied,
            ),
            (
                generic("status code: 400 Bad Request: <Code>InvalidToken</Code>"),
                Fate::Denied,
                ErrorKind::Denied,
            ),
            // A connection that was too slow; the same request may get through.
            (
                generic("status code: 400 Bad Request: <Code>RequestTimeout</Code>"),
                Fate::Doubt,
                ErrorKind::Unavailable,
            ),
            (generic("status code: 503"), Fate::Doubt, ErrorKind::Unavailable),
            (generic("Received redirect without LOCATION, ..."), Fate::Wrong, ErrorKind::InvalidInput),
            (
                E::PermissionDenied { path: "a".into(), source: "QuotaExceeded".into() },
                Fate::Denied,
                ErrorKind::Full,
            ),
        ];
        for (error, fated, kind) in cases {
            assert_eq!(fate(&error), fated, "{error}");
            let text = error.to_string();
            assert_eq!(*failed("do it", "s3://bucket at AWS", &error).kind(), kind, "{text}");
        }
    }

    #[test]
    fn error_of_a_silent_bucket_names_the_bucket_and_its_endpoint() {
        let (doing, place) = ("read an object", "s3://bucket at http://127.0.0.1:9000");
        let broken = E::Generic { store: "S3", source: "connection refused".into() };
        for error in [late(doing, place), failed(doing, place, &broken)] {
            assert_eq!(*error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(place), "{error}");
        }
    }
}
