//! Text of `--help` and `/help`. Lines of lists fit into 80 columns; paragraphs are wrapped by clap.

macro_rules! slash_commands {
    () => {
        "  /workspace    show the workspace, its id, the model and the session
  /context      show how many messages the model is given
  /history [N]  show the last N messages (default: 50)
  /sessions     list the sessions of this workspace
  /new [TITLE]  create a session, and switch to it
  /switch N     switch to session N of /sessions, or to an id, or to the
                beginning or the end of one
  /search WORDS find messages in the sessions of this workspace
  /open N       switch to the session of hit N of /search, and show it
  /fork         copy this session, and switch to the copy
  /edit TEXT    send another message in the place of your last one, or of
                message N of /history: /edit #N TEXT
  /retry        ask for another answer to your last message
  /undo         take back your last message and what followed
  /rewind N     go back to message N of /history; what followed is left out
  /branches     list what was edited, retried or taken back; /restore N
                continues one of them
  /title [TEXT] show the title of this session, or set it; /title auto: the
                model writes it
  /copy         copy the last answer to the clipboard of the terminal
  /model [NAME] show the model that answers, or choose another, as --model does
  /attach FILE  send a file with the next message, or alone with an empty
                line; /detach sends none. If a file cannot be stored, nothing
                is sent, and an empty line sends the text again
  /files        list the files in this session
  /save N PATH  save file N of /files
  /clear        clear the history of this session; the log still contains it
  /compact      give the model a summary of the messages so far, in their place
  /run          answer the pending messages now
  /allow, /deny answer the question that waits; /always allows later calls, too
  /ask TOOL     ask again before each call of a tool that was always allowed
  /mcp          list the MCP servers and their tools
  /help         show this list
  /quit         end the program, like Ctrl-D

Ctrl-C interrupts the answer; the program continues.
To send a message that begins with a slash, type two slashes."
    };
}

/// Commands of a conversation, as `/help` lists them.
pub(crate) const SLASH_COMMANDS: &str = slash_commands!();

/// Text of `--help` after the options.
pub(crate) const AFTER_HELP: &str = concat!(
    "Commands in a conversation:\n",
    slash_commands!(),
    "

If standard input is not a terminal, each line of it is sent and answered in turn. Answers go to standard output, \
     everything else to standard error. On a terminal, Markdown of answers is shown in styles, unless NO_COLOR is set.

Examples:
  chat
  chat --data-dir ./notes --device laptop
  chat --store sqlite:./notes.db
  chat workspace list --json
  chat session export ID --output session.json
  chat copy files:./notes sqlite:./notes.db
  chat backup ./notes-backup.db --store sqlite:./notes.db
  chat restore sqlite:./notes-backup.db --store sqlite:./notes.db
  chat verify --all-tenants
  chat session list --since 3d
  chat session show 2
  chat sizes
  chat search deploy failed
  chat maintain --store sqlite:./notes.db
  chat upgrade --store sqlite:./notes.db
  chat tenant export acme ./acme-export
  chat tenant delete acme --dry-run
  AWS_REGION=eu-central-1 chat --store s3://my-bucket/notes
  chat upgrade --store postgres://agent@localhost/agents
  chat --store postgres://agent@localhost/agents
  RUST_LOG=agent_runtime=debug chat
  printf 'hello\\n' | chat

Stores in S3 take credentials and region from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
     AWS_REGION; for other servers than AWS also AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for plain HTTP. Stores in Google \
     Cloud Storage (gs://) take GOOGLE_APPLICATION_CREDENTIALS, in Azure (az://) AZURE_STORAGE_ACCOUNT_NAME and \
     AZURE_STORAGE_ACCOUNT_KEY. On a machine of the cloud that has a role, write ?credentials=instance.

Stores in PostgreSQL take the password from PGPASSWORD or from the file ~/.pgpass (PGPASSFILE names another); in an \
     address, other users of the machine can see it. `chat upgrade` creates the tables, and nothing else does.

Warnings go to standard error. RUST_LOG shows more, or less: a level (error, warn, info, debug, trace, off), or levels of \
     crates or modules of this program, as in RUST_LOG=warn,agent_mcp=debug. Other libraries are never shown, because \
     some log what is said and keys.

Exit codes:
  0    success
  1    failure, or the output could not be written completely
  2    wrong command line, --yes is missing, or a store copied into itself
  130  interrupted by SIGINT (Ctrl-C)
  143  terminated by SIGTERM
Exit codes of commands only (a conversation returns 1):
  3    the named object or the store does not exist, or was deleted
  4    not possible now: the object is in use, in another state, was changed
       meanwhile, or exists already; or you answered no; nothing was changed
  5    stored data is damaged or has another format, or was not copied, rebuilt or
       erased; the output names it

Standard output that its reader closes, as `head` does, is not an error; neither is closed standard output (>&-).

Maximum sizes of input files: 1 MiB for a configuration; 1 GiB for a file that is attached or put into an area, and for \
     a session document. Device files are refused.

With --all-tenants and --json, the output is one JSON object on one line for each tenant, with its name in the field \
     `tenant`, and nothing if no tenant has data. `chat verify` of a SQLite store prints one object more, first and without \
     that field, for the file that all tenants share."
);

/// Builds the end of a command's help: its examples, and the exit codes.
macro_rules! examples {
    ($($example:literal),+ $(,)?) => {
        concat!(
            "Examples:\n",
            $("  ", $example, "\n",)+
            "\nExit codes: 0 success, 1 failure, 2 wrong command line, 3 not found, 4 not possible now, 5 damaged or \
             incomplete data. `chat --help` describes them."
        )
    };
}
pub(crate) use examples;
