//! A model server for tests: HTTP on the loopback, one JSON object on each line of the answer.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Serves requests until the program ends: the first is refused as overloaded.
pub(crate) async fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((connection, _)) = listener.accept().await else { break };
            if let Err(error) = answer(connection, number).await {
                eprintln!("server: {error}");
            }
        }
    });
    Ok(address)
}

async fn answer(connection: TcpStream, number: u32) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut length = 0;
    loop {
        let mut header = String::new();
        connection.read_line(&mut header).await?;
        match header.trim_end().split_once(": ") {
            Some(("content-length", bytes)) => length = bytes.parse().unwrap_or(0),
            _ if header.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    let request: Value = serde_json::from_slice(&body)?;
    if number == 0 {
        return connection.write_all(b"HTTP/1.1 529 Overloaded\r\ncontent-length: 0\r\n\r\n").await;
    }
    connection.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await?;
    let last =
        request["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let lines = if last["role"] == "tool" {
        let found = last["results"][0].as_str().unwrap_or("nothing");
        vec![
            json!({ "type": "text", "text": format!("There is {found}: ") }),
            json!({ "type": "text", "text": "take an umbrella." }),
            json!({ "type": "done", "input_tokens": 60, "output_tokens": 12 }),
        ]
    } else {
        vec![
            json!({ "type": "text", "text": "I look it up." }),
            json!({ "type": "tool", "id": "call-1", "name": "weather", "input": { "city": "Oslo" } }),
            json!({ "type": "done", "input_tokens": 40, "output_tokens": 9 }),
        ]
    };
    for line in lines {
        connection.write_all(format!("{line}\n").as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
