//! Connections, with a limit on the time that a client may take to send a request.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// Maximum bytes of a request's body.
const BODY_MAX_BYTES: usize = 2 << 20;

/// Time for clients to read the ends of their answers, after the last run has ended.
const LAST: Duration = Duration::from_secs(10);

/// Serves requests until `stopped`, and ends when the open connections have; `read` is the time for the header of a request,
/// and again for its body. Without it, a client that sends half a request would keep the server from its end.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    read: Duration,
    stopped: impl Future<Output = ()>,
) {
    let routes = routes.layer(from_fn(move |request, next| with_body(request, next, read)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(read);
    let (open, mut stopped) = (GracefulShutdown::new(), pin!(stopped));
    loop {
        tokio::select! {
            () = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) => {
                    let service = TowerToHyperService::new(routes.clone());
                    let served = open.watch(http.serve_connection(TokioIo::new(connection), service));
                    // It fails if the client goes away or takes too long.
                    tokio::spawn(async move { drop(served.await) });
                }
                Err(error) => {
                    // Too many files are open, for example.
                    eprintln!("error: {error}");
                    sleep(Duration::from_secs(1)).await;
                }
            },
        }
    }
    drop(listener);
    if timeout(LAST, open.shutdown()).await.is_err() {
        eprintln!("error: a client does not read its answer; its connection is cut");
    }
}

/// Reads the body of a request within the time, before anything is done with it.
async fn with_body(request: Request, next: Next, read: Duration) -> Response {
    let (parts, body) = request.into_parts();
    match timeout(read, to_bytes(body, BODY_MAX_BYTES)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or was cut\n").into_response(),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body took too long\n").into_response(),
    }
}
