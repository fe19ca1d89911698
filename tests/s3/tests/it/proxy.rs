//! Proxy between a program and a server on loopback, which notes each request that passes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Proxy. Its threads end with the test's process, or when their connections do.
pub(crate) struct Proxy {
    endpoint: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts a proxy to the server at this address, like `http://127.0.0.1:9000`.
    pub(crate) fn to(server: &str) -> Self {
        let server = server.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = requests.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                let recorded = recorded.clone();
                thread::spawn(move || forward(client, server, &recorded));
            }
        });
        Self { endpoint, requests }
    }

    /// Address for the program.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Method and target of each request so far, with `LIST` for a list.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The same, and forgets them.
    pub(crate) fn forget(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

/// Forwards what the client sends, and notes where a request begins.
fn forward(mut client: TcpStream, mut server: TcpStream, recorded: &Mutex<Vec<String>>) {
    let (mut head, mut body, mut buffer) = (Vec::new(), 0_usize, [0; 1 << 16]);
    loop {
        let read = client.read(&mut buffer).unwrap_or(0);
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            if body > 0 {
                let of_body = body.min(rest.len());
                (body, rest) = (body - of_body, &rest[of_body..]);
                continue;
            }
            head.push(rest[0]);
            rest = &rest[1..];
            if head.ends_with(b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
                let line = text.lines().next().unwrap_or_default();
                let mut words = line.split(' ');
                let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let method = if target.contains("list-type=") { "LIST" } else { method };
                recorded.lock().unwrap().push(format!("{method} {target}"));
                let length = text.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
                });
                body = length.unwrap_or(0);
            }
        }
        if read == 0 || server.write_all(&buffer[..read]).is_err() {
            let _ = server.shutdown(Shutdown::Write);
            return;
        }
    }
}
