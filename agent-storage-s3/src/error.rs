//! What the object store reports, as errors of this library: the one place that maps them.

use agent_core::{Error, ErrorKind};

/// What is known after a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// There is no such object.
    Absent,
    /// It did nothing, since a precondition does not hold (412, 304).
    Refused,
    /// It did nothing, since another request was at work on the same object (409).
    Collided,
    /// It did nothing: access was denied. Credentials may have run out, and new ones are fetched.
    Denied,
    /// It did nothing, and will not do better another time.
    Wrong,
    /// Nobody knows: a failing server, a connection that broke, an answer that was cut short.
    Doubt,
}

/// What is known after a request of which the client reports this.
pub(crate) fn fate(error: &object_store::Error) -> Fate {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } if is_without_bucket(error) => Fate::Wrong,
        E::NotFound { .. } => Fate::Absent,
        E::Precondition { .. } | E::NotModified { .. } => Fate::Refused,
        // The client tells a 412 from a 409 by what it wraps only.
        E::AlreadyExists { source, .. } => match source.downcast_ref::<E>() {
            Some(E::Precondition { .. } | E::NotModified { .. }) => Fate::Refused,
            _ => Fate::Collided,
        },
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Fate::Denied,
        E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } => Fate::Wrong,
        E::UnknownConfigurationKey { .. } => Fate::Wrong,
        E::Generic { .. } if is_elsewhere(error) => Fate::Wrong,
        _ => Fate::Doubt,
    }
}

/// S3 answers 404 for a bucket that is not there, too; an object must not seem absent then.
fn is_without_bucket(error: &object_store::Error) -> bool {
    error.to_string().contains("NoSuchBucket")
}

/// An object that ends before the part that is asked for has no such part (416).
pub(crate) fn is_beyond(error: &object_store::Error) -> bool {
    let text = error.to_string();
    text.contains("InvalidRange") || text.contains("Range Not Satisfiable")
}

/// A server of another region sends away who asks; that does not get better by asking again.
fn is_elsewhere(error: &object_store::Error) -> bool {
    error.to_string().contains("redirect without LOCATION")
}

/// The error for what the client reports: `cannot <doing>: <what to do>`.
pub(crate) fn failed(doing: &str, source: object_store::Error) -> Error {
    use object_store::Error as E;
    let text = source.to_string();
    let (kind, remedy) = match &source {
        E::NotFound { .. } if is_without_bucket(&source) => {
            (ErrorKind::NotFound, "there is no such bucket; create it, or look at the address")
        }
        E::PermissionDenied { .. } | E::Unauthenticated { .. } if text.contains("Quota") => {
            (ErrorKind::Full, "the quota is used up; make room, then try again")
        }
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            (ErrorKind::Denied, "access was denied; look at the credentials and at what they may do")
        }
        E::Generic { .. } if is_elsewhere(&source) => {
            (ErrorKind::InvalidInput, "the bucket is in another region; name it (AWS_REGION, or ?region=)")
        }
        E::InvalidPath { .. } => (ErrorKind::InvalidInput, "the key is none that this server takes"),
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "the server cannot do this; use one that keeps preconditions")
        }
        _ => (ErrorKind::Unavailable, "the server or the way to it failed; try again"),
    };
    Error::new(kind, format!("cannot {doing}: {remedy}")).with_source(source)
}

/// The error for a server that did not answer in time.
pub(crate) fn late(doing: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("cannot {doing}: the server did not answer in time; try again"),
    )
    .timed_out()
}

/// The error for stored bytes that are not what they should be.
pub(crate) fn corrupt(object: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{object} {what}; nothing was overwritten, mend it or restore it from a backup"),
    )
}

/// Whether an error is of one object only, so that a list names it and goes on.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use object_store::Error as E;

    use super::*;

    /// A part that lies beyond the end of its object is no failure of the server.
    #[test]
    fn what_lies_beyond_the_end_is_told() {
        assert!(is_beyond(&generic("status code: 416 Range Not Satisfiable")));
        assert!(is_beyond(&generic("<Code>InvalidRange</Code>")));
        assert!(!is_beyond(&generic("status code: 503 Service Unavailable")));
    }

    fn generic(text: &str) -> E {
        E::Generic { store: "S3", source: text.into() }
    }

    /// A bucket that is not there is no absent object, and what will not get better is not tried again.
    #[test]
    fn each_failure_is_what_it_is() {
        let absent = |text: &str| E::NotFound { path: "a".into(), source: text.into() };
        let exists = |source| E::AlreadyExists { path: "a".into(), source };
        let refused = E::Precondition { path: "a".into(), source: "412".into() };
        let cases = [
            (absent("<Code>NoSuchKey</Code>"), Fate::Absent, ErrorKind::Unavailable),
            (absent("<Code>NoSuchBucket</Code>"), Fate::Wrong, ErrorKind::NotFound),
            (exists(Box::new(refused)), Fate::Refused, ErrorKind::Unavailable),
            (exists("409".into()), Fate::Collided, ErrorKind::Unavailable),
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
            assert_eq!(*failed("do it", error).kind(), kind, "{text}");
        }
    }
}
