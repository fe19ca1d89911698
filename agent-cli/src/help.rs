//! What `--help` and `/help` say.

macro_rules! commands {
    () => {
        "  /workspace    where you are: the workspace, its id, the model, how much was said
  /context      how much a model is given
  /history [N]  what was said in this session
  /sessions     the sessions of this workspace
  /new [TITLE]  begin a session
  /switch N     go to session N of /sessions; an id, or its beginning, will do
  /fork         go on in a copy of this session, and leave this one as it is
  /clear        start this session's history anew
  /wake         answer what waits for an answer
  /help         this list
  /quit         end the program, as Ctrl-D does

Ctrl-C ends the answer, not the program. A text that begins with / is sent with another / before it."
    };
}

/// The commands, as `/help` lists them.
pub(crate) const COMMANDS: &str = commands!();

/// What `--help` says after the options.
pub(crate) const AFTER_HELP: &str = concat!(
    "In a conversation:\n",
    commands!(),
    "

Where the input is no terminal, each line of it is sent and answered in turn. Answers go to standard output, all
else to standard error.

Examples:
  chat
  chat --data-dir ./notes --device laptop
  chat --store sqlite:./notes.db
  chat workspace list --json
  chat session export ID --output session.json
  chat copy files:./notes sqlite:./notes.db
  chat backup ./notes-backup.db --store sqlite:./notes.db
  chat verify --all-tenants
  AWS_REGION=eu-central-1 chat --store s3://my-bucket/notes
  printf 'hello\\n' | chat

For s3://, the environment says where and who: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL
with AWS_ALLOW_HTTP=true for a server of your own.

Exit codes:
  0         all went well
  1         something failed, or standard output took only a part (a full disk); standard error says what, and what to do
  2         the command line is wrong, lacks --yes, or would copy a store into itself
  130, 143  ended by a signal
and of the commands:
  3         what was named is not there, or was deleted; the store, too: only what writes makes one
  4         it is not as it must be for that: somebody is at work on it, or has changed it; nothing was changed
  5         something stored is damaged, or was not copied or made anew; the report names it

A reader of standard output that has seen enough, as `head`, is no failure: nothing is said, and the code is that of the
command. Standard output that is closed (>&-) counts as one that nobody reads.

Files that are named, or come from a pipe, may have so many bytes at most: 1 MiB a configuration, 16 MiB what is put into an area,
1 GiB the document of a session. Devices are not read.

With --all-tenants and --json there is one line of JSON for each tenant, with its name in `tenant`."
);
