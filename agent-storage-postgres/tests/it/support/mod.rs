//! A PostgreSQL server of the program's own: its data in a temporary folder, on a free port of this machine. If no server can
//! be started, the program fails and says why.

#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable with the address of the server, for the processes that the program starts.
pub(crate) const ADDRESS: &str = "AGENT_POSTGRES_TEST";

/// User under which the server runs if the test is root, which PostgreSQL refuses.
const USER: &str = "postgres";

/// User who owns the tables, and may create roles.
pub(crate) const OWNER: &str = "owner";

/// Settings of a server for tests, none of which cuts the power.
const OF_TESTS: &str = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off -c shared_buffers=64MB -c autovacuum_naptime=5s";

/// Settings of a server that is measured: what is acknowledged is on the disk. The others are the defaults.
#[allow(dead_code, reason = "one of the programs uses it")]
const DURABLE: &str = "-c fsync=on -c full_page_writes=on -c synchronous_commit=on";

/// Running server, which is stopped, and its data removed, when this is dropped.
pub(crate) struct Server {
    address: String,
    /// Folder and programs, if this process has started the server.
    own: Option<(tempfile::TempDir, PathBuf)>,
    /// What the server is started with.
    options: String,
    #[allow(dead_code, reason = "one of the programs uses it")]
    log: Option<PathBuf>,
}

impl Server {
    /// Starts a server, or finds the one that a parent process has started.
    pub(crate) fn start() -> Self {
        Self::start_with(OF_TESTS, Path::new("/tmp"))
    }

    /// Starts a server with these settings in a folder, or finds the one that a parent process has started.
    fn start_with(settings: &str, folder: &Path) -> Self {
        if let Ok(address) = std::env::var(ADDRESS) {
            return Self { address, own: None, options: String::new(), log: None };
        }
        Self::start_on(settings, folder, |bin, data| {
            run(
                bin,
                "initdb",
                &["-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"],
            );
        })
    }

    /// Starts a standby of this server.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn standby(&self) -> Self {
        Self::start_on(OF_TESTS, Path::new("/tmp"), |bin, data| {
            run(
                bin,
                "pg_basebackup",
                &["-d", &self.address, "-D", data, "-R", "--checkpoint=fast", "--no-sync"],
            );
        })
    }

    /// Makes a standby accept writes.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn promote(&self) {
        let (folder, bin) = self.own.as_ref().expect("the server is this program's");
        run(
            bin,
            "pg_ctl",
            &["-D", folder.path().join("data").to_str().unwrap(), "-w", "-t", "60", "promote"],
        );
    }

    /// Starts a server on the data that `make` has made.
    fn start_on(settings: &str, folder: &Path, make: impl FnOnce(&Path, &str)) -> Self {
        let bin = programs();
        let folder = tempfile::Builder::new().prefix("agent-postgres-").tempdir_in(folder).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let data = folder.path().join("data");
        let data = data.to_str().unwrap();
        make(&bin, data);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = format!(
            "-p {port} -k {} -c listen_addresses=127.0.0.1 -c max_connections=600 {settings}",
            folder.path().display()
        );
        let address = format!("postgres://{USER}@127.0.0.1:{port}/postgres");
        let server = Self { address, own: Some((folder, bin)), options, log: None };
        server.start_again();
        // A standby has those of its primary.
        let roles = format!(
            "DO $$ BEGIN IF NOT pg_is_in_recovery() THEN CREATE ROLE {OWNER} LOGIN CREATEROLE; \
             GRANT CREATE ON DATABASE postgres TO {OWNER}; END IF; END $$"
        );
        if let Some((_, bin)) = &server.own {
            run(bin, "psql", &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", &roles, &server.address]);
        }
        server
    }

    /// Starts the server that this has started before.
    pub(crate) fn start_again(&self) {
        let (folder, bin) = self.own.as_ref().expect("the server is this one's");
        let (data, log) = (folder.path().join("data"), folder.path().join("server.log"));
        let (data, log) = (data.to_str().unwrap(), log.to_str().unwrap());
        run(bin, "pg_ctl", &["-D", data, "-l", log, "-w", "-t", "60", "-o", &self.options, "start"]);
    }

    /// Ends the server at once, as a crash does.
    pub(crate) fn kill(&self) {
        let (folder, bin) = self.own.as_ref().expect("the server is this one's");
        let data = folder.path().join("data");
        run(bin, "pg_ctl", &["-D", data.to_str().unwrap(), "-m", "immediate", "-w", "stop"]);
    }

    /// Starts a server for a program that does not drop it: a process waits for the end of this one, and stops it.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn start_for_program() -> Self {
        Self::start().for_program()
    }

    /// Starts a server that is measured, on the disk of TMPDIR, for a program that does not drop it.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn start_to_measure() -> Self {
        Self::start_with(DURABLE, &std::env::temp_dir()).for_program()
    }

    #[allow(dead_code, reason = "one of the programs uses it")]
    #[allow(clippy::zombie_processes, reason = "it lives longer than this process")]
    fn for_program(mut self) -> Self {
        let server = &mut self;
        if let Some((folder, bin)) = server.own.take() {
            let path = folder.keep();
            let stop = "while kill -0 $1 2>/dev/null; do sleep 0.2; done; $2 -D $3/data -m immediate stop; rm -rf $3";
            let stop =
                if is_root() { stop.replacen("$2", "runuser -u postgres -- $2", 1) } else { stop.to_owned() };
            let mut waits = Command::new("sh");
            waits
                .args(["-c", &stop, "sh", &std::process::id().to_string()])
                .arg(bin.join("pg_ctl"))
                .arg(&path);
            let none = std::process::Stdio::null;
            // What ends the program's group does not end this.
            waits.process_group(0);
            waits.current_dir("/").stdin(none()).stdout(none()).stderr(none()).spawn().unwrap();
            server.log = Some(path.join("server.log"));
        }
        self
    }

    /// Returns the log of the server.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.as_ref().expect("the server is this program's")).unwrap()
    }

    /// Returns the address of the server's database, for a superuser.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Passes the server on to the processes that this one starts, by running `main` in a process that knows its address, and perhaps
    /// another variable.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn run_again(&self, more: Option<(&str, &str)>) -> Option<i32> {
        self.own.as_ref()?;
        let program = std::env::current_exe().unwrap();
        let status = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(ADDRESS, &self.address)
            .envs(more)
            .status();
        Some(status.unwrap().code().unwrap_or(1))
    }
}

/// Returns an address with another user.
pub(crate) fn address_of(address: &str, user: &str) -> String {
    address.replacen(&format!("//{USER}@"), &format!("//{user}@"), 1)
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.kill();
        }
    }
}

/// Says what to do if there is no server.
pub(crate) const NOT_INSTALLED: &str = "no PostgreSQL server was found: install `postgresql`, or name the folder of `initdb` and `pg_ctl` in PG_BIN";

/// Returns the folder of the server's programs.
pub(crate) fn programs() -> PathBuf {
    installed().unwrap_or_else(|| panic!("{NOT_INSTALLED}"))
}

/// Finds the folder of the server's programs: `PG_BIN`, or else what `pg_config` says, or the newest of Debian's.
pub(crate) fn installed() -> Option<PathBuf> {
    let has = |bin: &PathBuf| bin.join("initdb").exists() && bin.join("pg_ctl").exists();
    if let Some(given) = std::env::var_os("PG_BIN") {
        return Some(PathBuf::from(given)).filter(has);
    }
    let mut found = Vec::<PathBuf>::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        found.push(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    let mut debian: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    debian.sort();
    found.extend(debian.into_iter().rev());
    found.into_iter().find(has)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Returns the command for a program, which is run as another user if this one is root.
pub(crate) fn as_user(program: &Path) -> Command {
    if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// Runs a program of the server.
fn run(bin: &Path, name: &str, args: &[&str]) {
    let program = bin.join(name);
    let mut command = as_user(&program);
    // The server keeps what it inherits; the output goes to a file, so that nothing waits for its end.
    let output = tempfile::NamedTempFile::new().unwrap();
    let (out, err) = (output.reopen().unwrap(), output.reopen().unwrap());
    let status = command.args(args).current_dir("/").env("LC_ALL", "C").stdout(out).stderr(err).status();
    let status = status.unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()));
    let said = fs::read_to_string(output.path()).unwrap_or_default();
    assert!(status.success(), "{} {args:?} failed: {said}", program.display());
}
