//! Searches: the same hits in the same order on every store, and nothing that the handle does not show.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Role};
use agent_core::search::{Hit, Query, Search, SearchPage, before_restore};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BlobQuery, Consistency, Purge, ReadBlob, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionId, Storage, Timestamp, WorkspaceId};

use super::owners::Owners;
use crate::failure::{Checked, Failure, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, ends};

pub(super) fn clauses() -> Vec<Clause> {
    table![Search:
        what_was_said_is_found_in_any_language (Needs::ImmediateLists),
        a_search_that_stops_goes_on_where_it_was (Needs::ImmediateLists),
        searches_keep_the_order_of_a_session_against_its_clocks (Needs::ImmediateLists),
        searches_show_what_the_handle_shows (Needs::ImmediateLists),
        an_index_changes_no_hit (Needs::Blobs),
        an_index_shows_what_its_handle_shows (Needs::Blobs),
    ]
}

/// What people say, with words in one text that are in others, too.
const CORPUS: [&str; 28] = [
    "Deploy to staging failed: exit code 1",
    "deploy to production is done",
    "the deployment of Staging",
    "Die Straße nach Köln ist gesperrt",
    "DIE STRASSE NACH KOELN",
    "İstanbul'da hava güzel, ısı yüksek",
    "istanbul is a city",
    "Ёлка стоит в углу",
    "елка и дом",
    "مرحبا بالعالم، كيف الحال",
    "مَرْحَبًا",
    "यह हिन्दी में है",
    "สวัสดีชาวโลก",
    "서울에서 배포가 실패했다",
    "서울 리전 배포 성공",
    "東京でデプロイに失敗した",
    "ﾃﾞﾌﾟﾛｲ",
    "部署到生产环境失败",
    "会议在星期三",
    "🎉 done 🎉🎉",
    "fn snake_case(x: &str) -> Vec<u8> { x.to_vec() }",
    "C++ and c# and F-16",
    "\"quoted\" AND NEAR/2 (nothing) * OR",
    "cafe\u{301} or café or CAFE",
    "zero\u{200b}width and soft\u{ad}hyphen",
    "\u{202e}right to left\u{202c} \0 nul",
    "db",
    "",
];

const QUERIES: [&str; 36] = [
    "deploy",
    "deploy -staging",
    "\"deploy to\"",
    "exit code",
    "strasse köln",
    "STRASSE",
    "istanbul",
    "ısı",
    "елка",
    "مرحبا",
    "हिन्दी",
    "โลก",
    "서울",
    "배포 -실패",
    "실",
    "デプロイ",
    "東京",
    "失败",
    "会议",
    "🎉",
    "🎉🎉",
    "snake_case",
    "snake",
    "c",
    "f-16",
    "\"c++\"",
    "NEAR/2",
    "* OR",
    "café",
    "zerowidth",
    "softhyphen",
    "nul",
    "db",
    "to -to",
    "message",
    "a b c d e f",
];

/// Returns some 200 queries: each word of the corpus, each two as a phrase, and pairs of characters where words are not separated.
fn queries_of_the_corpus() -> BTreeSet<String> {
    let mut queries: BTreeSet<String> = QUERIES.iter().map(|query| (*query).to_owned()).collect();
    for text in CORPUS {
        let words: Vec<_> = text.split_whitespace().collect();
        queries.extend(words.iter().map(|word| word.trim_start_matches('-').to_owned()));
        queries.extend(
            words.windows(2).map(|words| format!("\"{}\" -nothing", words.join(" ").replace('"', ""))),
        );
        let dense: Vec<_> = text.chars().filter(|c| *c as u32 > 0xe00).collect();
        queries.extend(dense.windows(2).map(|pair| pair.iter().collect()));
    }
    queries.retain(|query| Query::parse(query).is_ok());
    queries
}

/// Sessions with the texts of the corpus, in turns, a second apart.
struct Said {
    storage: Storage,
    texts: Vec<(Timestamp, SessionId, Seq, String)>,
}

impl Said {
    async fn new(stage: &Stage) -> Checked<Self> {
        let storage = stage.open().await?;
        let mut sessions = Vec::new();
        for _ in 0..5 {
            let commit = Commit::create(&stage.effects, stage.session(&storage).await?);
            sessions.push(storage.sessions.commit(at(commit, 0)).await?.session);
        }
        let mut texts = Vec::new();
        for (n, text) in CORPUS.iter().cycle().take(3 * CORPUS.len()).enumerate() {
            let session = &mut sessions[n * 7 % 11 % 5];
            let commit = at(stage.seal(session).with_event(NewEvent::user_message(*text)), n);
            let time = commit.at;
            *session = storage.sessions.commit(commit).await?.session;
            texts.push((time, session.id, session.head, (*text).to_owned()));
        }
        Ok(Self { storage, texts })
    }

    /// Returns the places of the texts that a query finds, newest first.
    fn expected(&self, query: &str) -> Checked<Vec<(SessionId, Seq)>> {
        let query = Query::parse(query)?;
        let mut found = Vec::new();
        let mut later: BTreeMap<SessionId, Timestamp> = BTreeMap::new();
        for (at, id, seq, text) in self.texts.iter().rev() {
            // Not after those behind it in the session.
            let place = *later.entry(*id).and_modify(|later| *later = (*later).min(*at)).or_insert(*at);
            if query.matches(text) {
                found.push((place, *id, *seq));
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().rev().map(|(_, id, seq)| (id, seq)).collect())
    }
}

/// Returns the storage as it is days later, when all that was said is older than the index.
fn days_later(stage: &Stage, storage: &Storage) -> Storage {
    let later = START.plus_micros(30 * 24 * 3600 * 1_000_000);
    storage.clone().with_effects(Effects::seeded(stage.effects.random_u64(), later))
}

/// Seals a commit so many seconds after the start.
fn at(mut commit: Commit, seconds: usize) -> Commit {
    commit.at = START.plus_micros(seconds as i64 * 1_000_000);
    commit
}

/// Returns the hits of all pages.
async fn all_hits(storage: &Storage, search: Search) -> Checked<Vec<Hit>> {
    let (mut hits, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = storage.sessions.search(&search.clone().with_cursor(cursor)).await?;
        let SearchPage { hits: more, next, damaged, .. } = page;
        if more.len() > search.limit {
            return Err(Failure::new("a page", format_args!("at most {}", search.limit), more.len()));
        }
        same("the damage", &damaged, &Vec::new())?;
        hits.extend(more);
        pages += 1;
        ends(pages)?;
        cursor = next;
        if cursor.is_none() {
            return Ok(hits);
        }
    }
}

fn places(hits: &[Hit]) -> Vec<(SessionId, Seq)> {
    hits.iter().map(|hit| (hit.session, hit.seq)).collect()
}

/// Whole words are found in any case, with other accents and widths, and parts of texts in scripts without spaces: newest first, in pages of
/// any size, also after a restart.
async fn what_was_said_is_found_in_any_language(stage: &Stage) -> Checked {
    let mut said = Said::new(stage).await?;
    let mut found = 0;
    for round in 0..2 {
        for query in QUERIES {
            let expected = said.expected(query)?;
            for limit in [1, 4, 100] {
                let hits = all_hits(&said.storage, Search::new(query).with_limit(limit)).await?;
                let what = format_args!("the hits of {query:?}, {limit} a page").to_string();
                same(what, &places(&hits), &expected)?;
                found += hits.len();
            }
        }
        if round == 0 {
            let queries = queries_of_the_corpus();
            same("the number of queries", &(queries.len() > 200), &true)?;
            for query in queries {
                let hits = all_hits(&said.storage, Search::new(&query).with_limit(100)).await?;
                same(format_args!("the hits of {query:?}"), &places(&hits), &said.expected(&query)?)?;
            }
            said.storage = stage.reopen(said.storage).await?;
        }
    }
    same("something was found", &(found > 500), &true)?;
    // Within a workspace, a session and a time.
    let (storage, one) = (&said.storage, &said.texts[0]);
    let workspace = storage.sessions.load(one.1).await?.workspace;
    let expected: Vec<_> = said.expected("deploy")?.into_iter().filter(|(id, _)| *id == one.1).collect();
    let search = || Search::new("deploy");
    for narrow in [search().with_workspace(workspace), search().with_session(one.1)] {
        same("the hits of one session", &places(&all_hits(storage, narrow).await?), &expected)?;
    }
    // A session is searched only if it is what else the search asks for, and so are those of a creator.
    let elsewhere = search().with_session(one.1).with_workspace(WorkspaceId::from_uuid(*one.1.as_uuid()));
    same("the hits of the session elsewhere", &all_hits(storage, elsewhere).await?, &Vec::new())?;
    let ada = Actor::named(Role::User, "ada")?;
    let create = Commit::create(&stage.effects, stage.session(storage).await?).with_actor(ada.clone());
    let created = storage.sessions.commit(at(create, 0)).await?.session;
    let of_ada = stage.append(storage, &created, "pear").await?.session;
    for (text, expected) in [("pear", vec![(of_ada.id, of_ada.head)]), ("deploy", Vec::new())] {
        let hits = all_hits(storage, Search::new(text).with_creator(ada.clone())).await?;
        same("the hits of a creator", &places(&hits), &expected)?;
    }
    let middle = said.texts[40].0;
    let (early, late) = (search().with_until(middle), search().with_since(middle));
    let mut both = places(&all_hits(storage, late).await?);
    both.extend(places(&all_hits(storage, early).await?));
    same("the hits before and since", &both, &said.expected("deploy")?)?;
    refused!("no word", storage.sessions.search(&Search::new("-a")).await, ErrorKind::InvalidInput)?;
    let other = storage.sessions.search(&search().with_limit(1)).await?.next;
    let other = Search::new("db").with_cursor(other);
    refused!("the cursor of another search", storage.sessions.search(&other).await, ErrorKind::InvalidInput)?;
    Ok(())
}

/// A search that has read as much as it may tells how far it came, and the next page goes on: in the end the hits are the same.
async fn a_search_that_stops_goes_on_where_it_was(stage: &Stage) -> Checked {
    let said = Said::new(stage).await?;
    let storage = &said.storage;
    // More than what one read takes.
    let mut long = storage.sessions.load(said.texts[0].1).await?;
    for n in 0..7 {
        let events = (0..100).map(|n| NewEvent::user_message(format!("message {n}")));
        let commit = at(stage.seal(&long).with_events(events), 1000 + n);
        long = storage.sessions.commit(commit).await?.session;
    }
    let whole = all_hits(storage, Search::new("deploy")).await?;
    same("all hits", &places(&whole), &said.expected("deploy")?)?;
    for bytes in [0, 1, 20_000, 10 << 20] {
        let search = Search::new("deploy").with_max_bytes(bytes).with_limit(3);
        let first = storage.sessions.search(&search).await?;
        same("a search that stopped", &first.is_complete, &(bytes == 10 << 20))?;
        same("a next page", &first.next.is_some(), &true)?;
        let hits = all_hits(storage, search).await?;
        same(format_args!("the hits with {bytes} bytes a page"), &hits, &whole)?;
    }
    Ok(())
}

/// A clock that was set back makes no event come after those behind it, and hides none.
async fn searches_keep_the_order_of_a_session_against_its_clocks(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let day = 24 * 3600;
    let mut expected = Vec::new();
    // In each session the first was written by a clock that is days ahead, and another that is behind.
    for n in 0..3 {
        let new = stage.session(&storage).await?;
        let mut session = storage.sessions.commit(at(Commit::create(&stage.effects, new), 0)).await?.session;
        for seconds in [9 * day, 10 + n, 20 + n, 5 * day, 30 + n, 15 + n, 40 + n] {
            let commit = at(stage.seal(&session).with_event(NewEvent::user_message("word")), seconds);
            session = storage.sessions.commit(commit).await?.session;
        }
        // The earliest time of each message and of those after it.
        let times = [10, 10, 15, 15, 15, 15, 40].map(|seconds| seconds + n);
        expected.extend(times.into_iter().zip(2..).map(|(time, seq)| (time, session.id, Seq::new(seq))));
    }
    expected.sort();
    let expected: Vec<_> = expected.into_iter().rev().map(|(_, id, seq)| (id, seq)).collect();
    for (limit, bytes) in [(100, 1 << 20), (2, 1 << 20), (2, 1)] {
        let search = Search::new("word").with_limit(limit).with_max_bytes(bytes);
        let hits = all_hits(&storage, search).await?;
        same(format_args!("the hits, {limit} a page and {bytes} bytes"), &places(&hits), &expected)?;
    }
    let since = Search::new("word").with_since(START.plus_micros(8 * day as i64 * 1_000_000));
    same("the hits of the clock ahead", &all_hits(&storage, since).await?.len(), &3)
}

/// Another tenant's and another owner's texts are not found, nor what was deleted or purged, nor shared data of hidden sessions.
async fn searches_show_what_the_handle_shows(stage: &Stage) -> Checked {
    let owners = Owners::open(stage).await?;
    for (storage, text) in
        [(&owners.alice, "apple of alice"), (&owners.bob, "apple of bob"), (&owners.tenant, "apple of all")]
    {
        let new = NewSession::new(stage.effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = stage.create(storage, new).await?;
        stage.append(storage, &session, text).await?;
    }
    let count = async |storage: &Storage| -> Checked<usize> {
        Ok(all_hits(storage, Search::new("apple")).await?.len())
    };
    same("alice finds", &count(&owners.alice).await?, &1)?;
    same(
        "bob finds",
        &all_hits(&owners.bob, Search::new("apple")).await?[0].snippet.marked("_"),
        &"_apple_ of bob".to_owned(),
    )?;
    same("the tenant finds", &count(&owners.tenant).await?, &3)?;
    let no_owners = all_hits(&owners.tenant, Search::new("apple").without_owner()).await?;
    let said: Vec<_> = no_owners.iter().map(|hit| hit.snippet.text.as_str()).collect();
    same("the sessions without an owner", &said, &vec!["apple of all"])?;
    let other = stage.open_for(&"other".parse()?).await?;
    same("another tenant finds", &count(&other).await?, &0)?;

    let session = stage.new_session(&other).await?;
    let session = stage.append(&other, &session, "pear").await?.session;
    same("before the deletion", &all_hits(&other, Search::new("pear")).await?.len(), &1)?;
    let delete = stage.seal(&session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = other.sessions.commit(delete).await?.session;
    same("after the deletion", &all_hits(&other, Search::new("pear")).await?.len(), &0)?;
    other.sessions.purge(Purge::new(session.id, deleted.head)).await?;
    same("after the purge", &all_hits(&other, Search::new("pear")).await?.len(), &0)
}

/// With an index, behind it, after what it has was deleted, and without it again the hits are the same.
async fn an_index_changes_no_hit(stage: &Stage) -> Checked {
    let mut said = Said::new(stage).await?;
    if said.storage.sessions.capabilities().listing != Consistency::Immediate {
        return Ok(());
    }
    let later = days_later(stage, &said.storage);
    let mut found = 0;
    let mut purged = None;
    for round in
        ["new", "behind", "again", "restored", "after a deletion", "after a purge", "rid of it", "removed"]
    {
        match round {
            "restored" => {
                let there = stage.open_for(&"elsewhere".parse()?).await?;
                let commit = Commit::create(&stage.effects, stage.session(&said.storage).await?)
                    .with_event(NewEvent::user_message("deploy of last year"));
                let created = there.sessions.commit(at(commit, 0)).await?;
                let id = created.session.id;
                let events = there.sessions.read(id, ReadEvents::first(10)).await?.events;
                before_restore(&*said.storage.sessions).await?;
                said.storage.sessions.commit(Commit::restore(id, events)?).await?;
                said.texts.insert(0, (START, id, created.last, "deploy of last year".to_owned()));
            }
            "behind" => {
                for (n, text) in CORPUS.iter().enumerate() {
                    // By clocks that differ by hours.
                    let id = said.texts[n * 3].1;
                    let session = said.storage.sessions.load(id).await?;
                    let mut commit = stage.seal(&session).with_event(NewEvent::user_message(*text));
                    commit.at = later.effects().now().plus_micros((n as i64 % 5 - 2) * 3600 * 1_000_000);
                    let committed = said.storage.sessions.commit(commit.clone()).await?;
                    said.texts.push((commit.at, id, committed.last, (*text).to_owned()));
                }
            }
            "after a deletion" => {
                let id = said.texts[0].1;
                said.storage.sessions.trigger(id, Trigger::Delete(Reason::UserDeleted)).await?;
                said.texts.retain(|(_, of, ..)| *of != id);
            }
            "after a purge" => {
                let id = said.texts[0].1;
                let deleted = said.storage.sessions.trigger(id, Trigger::Delete(Reason::UserDeleted)).await?;
                said.storage.sessions.purge(Purge::new(id, deleted.session.head)).await?;
                said.texts.retain(|(_, of, ..)| *of != id);
                said.storage = stage.reopen(said.storage).await?;
                purged = Some(id);
            }
            "removed" => {
                let removed = later.sessions.remove_search_index().await?;
                same("something was removed", &(removed > 0), &true)?;
            }
            _ => {
                let updated = later.sessions.update_search_index().await?;
                same("all is in the index", &updated.is_complete, &true)?;
                check_bytes(&said.storage, purged).await?;
            }
        }
        for query in QUERIES {
            let expected = said.expected(query)?;
            for (limit, bytes) in [(100, 1 << 20), (4, 100)] {
                let search = Search::new(query).with_limit(limit).with_max_bytes(bytes);
                let hits = all_hits(&said.storage, search).await?;
                let what = format!("the hits of {query:?}, {limit} a page, index {round}");
                same(what, &places(&hits), &expected)?;
                found += hits.len();
            }
        }
    }
    same("something was found", &(found > 500), &true)?;
    let hidden = SessionQuery::new().with_states([SessionState::Archived]);
    same("nothing is left of the index", &said.storage.sessions.list(hidden).await?.items.len(), &0)
}

/// Checks that the bytes of the index have no word, and no id of a session that was purged.
async fn check_bytes(storage: &Storage, purged: Option<SessionId>) -> Checked {
    let hidden = SessionQuery::new().with_states([SessionState::Archived]);
    let mut read = 0;
    for session in storage.sessions.list(hidden).await?.items {
        let events = storage.sessions.read(session.id, ReadEvents::first(100)).await?.events;
        let mut bytes: Vec<u8> = events.iter().flat_map(|event| event.to_json().into_bytes()).collect();
        for blob in storage.sessions.blobs().list(BlobQuery::new(session.id)).await?.items {
            let content = storage.sessions.blobs().read(ReadBlob::new(session.id, blob.name)).await?;
            bytes.extend(content.into_bytes(1 << 20).await?);
        }
        read += bytes.len();
        let has = |part: &[u8]| bytes.windows(part.len()).any(|bytes| bytes == part);
        for word in ["deploy", "strasse", "배포", "失败"] {
            same("a word in the index", &has(word.as_bytes()), &false)?;
        }
        let id = purged.map(|id| has(id.as_uuid().as_bytes()));
        same("the id of a purged session in the index", &id.unwrap_or_default(), &false)?;
    }
    same("the index has bytes", &(read > 1000), &true)
}

/// An owner's index has the owner's sessions, and nobody else's handle shows it; the tenant's has those of all.
async fn an_index_shows_what_its_handle_shows(stage: &Stage) -> Checked {
    let owners = Owners::open(stage).await?;
    if owners.tenant.sessions.capabilities().listing != Consistency::Immediate {
        return Ok(());
    }
    let handles =
        [(&owners.alice, "apple of alice"), (&owners.bob, "apple of bob"), (&owners.tenant, "apple of all")];
    for (storage, text) in handles {
        let new = NewSession::new(stage.effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = stage.create(storage, new).await?;
        stage.append(storage, &session, text).await?;
    }
    for (n, (storage, _)) in handles.iter().enumerate() {
        let updated = days_later(stage, storage).sessions.update_search_index().await?;
        let expected = [1, 1, 3][n];
        same("the sessions of an index", &updated.sessions, &expected)?;
        for (at, (storage, text)) in handles.iter().enumerate() {
            let hits = all_hits(storage, Search::new("apple")).await?;
            same("the hits of a handle", &hits.len(), &[1, 1, 3][at])?;
            let own = hits.iter().any(|hit| hit.snippet.text == *text);
            same("what a handle has said is among them", &own, &true)?;
        }
    }
    let hidden = SessionQuery::new().with_states([SessionState::Archived]);
    for (storage, of) in [(&owners.alice, 2), (&owners.bob, 2), (&owners.tenant, 6)] {
        same("the sessions of indexes", &storage.sessions.list(hidden.clone()).await?.items.len(), &of)?;
    }
    owners.alice.sessions.remove_search_index().await?;
    same("of bob's nothing was removed", &owners.bob.sessions.list(hidden).await?.items.len(), &2)
}
