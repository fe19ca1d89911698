//! Real servers for tests: of S3, and of Azure, started on demand: unpublished.
//!
//! [`Server::start`] starts one on loopback, for this process alone. It ends when the [`Server`] is dropped or this process
//! ends, however it ends. Nothing is installed: where the programs are missing the test says so, and in CI it fails.

use std::fmt;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/serve");

/// Kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ceph's gateway, with a monitor and a store in memory: a real server.
    Ceph,
    /// The emulator of that name.
    Ministack,
    /// The emulator of Azure Blob Storage by its maker.
    Azurite,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Ceph => "ceph",
            Self::Ministack => "ministack",
            Self::Azurite => "azurite",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Ceph => "apt-get install --no-install-recommends ceph-mon ceph-osd radosgw curl python3",
            Self::Ministack => {
                "python3 -m venv target/ministack && target/ministack/bin/pip install ministack==1.5.33"
            }
            Self::Azurite => {
                "apt-get install --no-install-recommends nodejs npm && npm install --prefix target/azurite azurite@3.37.0"
            }
        }
    }

    /// Returns the address of a store on a server of this kind, with its credentials.
    pub fn address(self, endpoint: &str, prefix: &str) -> String {
        let (bucket, key, secret) = (Server::BUCKET, Server::ACCESS_KEY, Server::SECRET_KEY);
        match self {
            Self::Ceph | Self::Ministack => format!(
                "s3://{bucket}/{prefix}?endpoint={endpoint}&allow_http=true&region=us-east-1&access_key_id={key}\
                 &secret_access_key={secret}"
            ),
            Self::Azurite => format!(
                "az://{bucket}/{prefix}?endpoint={endpoint}&allow_http=true&account_name={key}&access_key={}",
                Server::AZURE_KEY
            ),
        }
    }

    /// Checks that this machine has what the server needs.
    ///
    /// # Errors
    ///
    /// `Unavailable` names what is missing.
    pub fn check(self) -> Result<(), Unavailable> {
        let checked = Command::new(SCRIPT).args([self.name(), "look"]).stdin(Stdio::null()).output();
        match checked {
            Ok(done) if done.status.success() => Ok(()),
            Ok(done) => Err(Unavailable::new(self, String::from_utf8_lossy(&done.stdout).trim())),
            Err(error) => Err(Unavailable::new(self, &error.to_string())),
        }
    }
}

/// Reason for which there is no server, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(String);

impl Unavailable {
    fn new(kind: Kind, why: &str) -> Self {
        Self(format!("no {} server for this test: {why}\n  install it: {}", kind.name(), kind.remedy()))
    }

    /// Says it loudly. Whether the test may be passed over: not in CI.
    pub fn may_be_passed_over(&self) -> bool {
        // Past the test harness, which keeps what tests print.
        let _ = writeln!(std::io::stderr().lock(), "\n!!! NOT TESTED: {self}\n");
        std::env::var_os("CI").is_none()
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// A server with one bucket, [`Server::BUCKET`].
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    // Closed when this is dropped or the process ends; then the script ends the server.
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    script: Child,
    endpoint: String,
}

impl Server {
    /// The bucket that is there.
    pub const BUCKET: &'static str = "test";
    /// Credentials of the server.
    pub const ACCESS_KEY: &'static str = "test";
    /// With this.
    pub const SECRET_KEY: &'static str = "testsecret";
    /// The same as Azure's key of an account.
    pub const AZURE_KEY: &'static str = "dGVzdHNlY3JldA==";

    /// Starts a server of its own for the caller.
    ///
    /// # Errors
    ///
    /// Where a program is missing or does not start.
    pub fn start(kind: Kind) -> Result<Self, Unavailable> {
        let failed = |error: std::io::Error| Unavailable::new(kind, &error.to_string());
        let mut script = Command::new(SCRIPT)
            .arg(kind.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What ends the test at the terminal does not end the script: it has to clean up.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (orders, out) = (script.stdin.take(), script.stdout.take());
        let out = out.ok_or_else(|| Unavailable::new(kind, "the script has no output"))?;
        let mut server =
            Self { kind, orders, answers: BufReader::new(out).lines(), script, endpoint: String::new() };
        let ready = server.answer()?;
        match ready.strip_prefix("ready ") {
            Some(endpoint) => server.endpoint = endpoint.to_owned(),
            None => return Err(Unavailable::new(kind, &ready)),
        }
        Ok(server)
    }

    /// Address of a store on this server.
    pub fn address(&self, prefix: &str) -> String {
        self.kind.address(&self.endpoint, prefix)
    }

    /// Address at which the server listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Kills what clients talk to, with -9. What is stored stays.
    ///
    /// # Errors
    ///
    /// Where the script has ended.
    pub fn kill_gateway(&mut self) -> Result<(), Unavailable> {
        self.order("kill", "killed")
    }

    /// Starts it again, at the same address; returns when it answers.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn start_gateway(&mut self) -> Result<(), Unavailable> {
        self.order("start", "started")
    }

    fn order(&mut self, order: &str, done: &str) -> Result<(), Unavailable> {
        let gone = || Unavailable::new(self.kind, "the script has ended");
        let orders = self.orders.as_mut().ok_or_else(gone)?;
        writeln!(orders, "{order}").map_err(|_| gone())?;
        let answer = self.answer()?;
        if answer == done { Ok(()) } else { Err(Unavailable::new(self.kind, &answer)) }
    }

    fn answer(&mut self) -> Result<String, Unavailable> {
        match self.answers.next() {
            Some(Ok(line)) => Ok(line),
            _ => Err(Unavailable::new(self.kind, "the script has ended")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.orders = None;
        // It has killed the server and removed its files by then.
        let _ = self.script.wait();
    }
}
