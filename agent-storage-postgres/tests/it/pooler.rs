//! PgBouncer in transaction mode before the server, on a free port of this machine. If it cannot be started, the test fails and says
//! why.

#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "it waits for a program, outside of any runtime")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::support::as_user;

/// Time in which it starts on a busy machine.
const LATE: Duration = Duration::from_secs(60);

/// Running pooler, which is ended when this is dropped.
pub(crate) struct Pooler {
    pub(crate) address: String,
    child: Child,
    folder: tempfile::TempDir,
}

impl Pooler {
    /// Starts a pooler before the server at `postgres://USER@HOST:PORT/DATABASE`, with so many connections of the server for each
    /// user and database, and more lines of its configuration.
    pub(crate) fn before(server: &str, connections: usize, more: &str) -> Self {
        let (login, rest) = server.split_once('@').unwrap();
        let (place, database) = rest.split_once('/').unwrap();
        let (host, server_port) = place.split_once(':').unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::Builder::new().prefix("agent-pgbouncer-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (users, ini) = (folder.path().join("users.txt"), folder.path().join("pgbouncer.ini"));
        // It asks the server for the users whom it does not know.
        fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let config = format!(
            "[databases]\n* = host={host} port={server_port} auth_user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {connections}\nserver_idle_timeout = 2\nmax_client_conn = 1000\nserver_login_retry = 1\n{more}\n",
            users.display()
        );
        fs::write(&ini, config).unwrap();
        let output = fs::File::create(folder.path().join("log")).unwrap();
        // Debian has it where only root looks.
        let debian = Path::new("/usr/sbin/pgbouncer");
        let mut command = as_user(if debian.exists() { debian } else { "pgbouncer".as_ref() });
        command
            .args(["-q".as_ref(), ini.as_os_str()])
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap());
        let child = command.stderr(output).spawn().unwrap_or_else(|error| {
            panic!("PgBouncer was not found: install `pgbouncer` ({error})");
        });
        let mut pooler = Self { address: format!("{login}@127.0.0.1:{port}/{database}"), child, folder };
        pooler.wait(port);
        pooler
    }

    /// Waits until it accepts connections.
    fn wait(&mut self, port: u16) {
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("PgBouncer ended, {status}; install `pgbouncer` if it is missing: {}", log());
            }
            assert!(began.elapsed() < LATE, "PgBouncer does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = (self.child.kill(), self.child.wait());
    }
}
