//! Proxy before the server, which counts the turns of a conversation: how often the client speaks after the server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts, and cuts connections if it is told to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    turns: AtomicUsize,
    /// True if the next answer of the server is withheld, and its connection cut.
    cuts: AtomicBool,
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    pub(crate) counts: Arc<Counts>,
}

impl Proxy {
    /// Starts a proxy before the server at `postgres://USER@HOST:PORT/DATABASE`.
    pub(crate) fn before(server: &str) -> Self {
        let (login, rest) = server.split_once('@').unwrap();
        let (to, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("{login}@{}/{database}", listener.local_addr().unwrap());
        let (counts, to) = (Arc::new(Counts::default()), to.to_owned());
        let of_proxy = counts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&to).unwrap());
                serve(&client, &server, &of_proxy);
            }
        });
        Self { address, counts }
    }

    /// Returns the turns since the last call.
    pub(crate) fn turns(&self) -> usize {
        self.counts.turns.swap(0, Ordering::SeqCst)
    }

    /// Withholds the next answer, and cuts its connection.
    pub(crate) fn cut_next_answer(&self) {
        self.counts.cuts.store(true, Ordering::SeqCst);
    }
}

fn serve(client: &TcpStream, server: &TcpStream, counts: &Arc<Counts>) {
    // True while the client has spoken last.
    let asks = Arc::new(AtomicBool::new(false));
    for (is_client, mut from, mut to) in [
        (true, client.try_clone().unwrap(), server.try_clone().unwrap()),
        (false, server.try_clone().unwrap(), client.try_clone().unwrap()),
    ] {
        let (asks, counts) = (asks.clone(), counts.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if asks.swap(is_client, Ordering::SeqCst) != is_client && is_client {
                    counts.turns.fetch_add(1, Ordering::SeqCst);
                }
                if !is_client && counts.cuts.swap(false, Ordering::SeqCst) {
                    break;
                }
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}
