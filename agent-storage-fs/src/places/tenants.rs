//! Tenants of a store: which there are.

use agent_core::store::{Damaged, Page};
use agent_core::text::quoted;
use agent_core::{Error, Result, TenantId};

use crate::error::{failed, is_own};
use crate::medium::env::Env;
use crate::medium::layout::{self, Layout, id_of, is_strange, is_temp};
use crate::places::delete_tenant::{is_of_bindings, is_removable, is_unfinished};

/// Returns whether the root contains anything that a store created.
pub(crate) fn holds_store(env: &Env) -> Result<bool> {
    let layout = Layout::new(&env.root, &TenantId::default());
    for path in [layout.bindings(), layout.workspaces(), layout.pointers(), Layout::tenants(&env.root)] {
        match env.io.stat(&path) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at", &path, error)),
        }
    }
    Ok(false)
}

/// Checks that a folder without a store can become one: it has nothing but what a store writes, or its host beside it before it is
/// first opened.
///
/// # Errors
///
/// `InvalidInput`, with the first entry that is something else: the folder is a home directory or the like.
pub(crate) fn check_free(env: &Env) -> Result<()> {
    // Another process may have created the store since it was looked for. A volume that was just made has `lost+found`.
    let own =
        [layout::WORKSPACES, "tenants", layout::CONFIG, layout::INDEX, layout::DEVICES, layout::DELETION];
    let own = [&own[..], &[layout::BLOBS, "lock", "lost+found"]].concat();
    let others = env.list(&env.root)?.into_iter().map(|(name, _)| name).filter(|name| {
        let text = name.to_string_lossy();
        !(own.contains(&&*text) || is_temp(&text) || is_of_bindings(&text) || is_removable(name))
    });
    others.min().map_or(Ok(()), |name| {
        Err(Error::invalid(format!(
            "the folder {} holds no store and is not empty: it has {}; name an empty folder, or a new one",
            env.root.display(),
            quoted(&name.to_string_lossy())
        )))
    })
}

/// Returns the tenants that have data. The tenant `default`, whose check names folders that no tenant has, is one of them if
/// there are such.
pub(crate) fn list(env: &Env, after: Option<&TenantId>) -> Result<Page<TenantId>> {
    let mut found = Vec::new();
    env.check_seen(&[&env.root])?;
    let (names, damaged) = match env.list(&Layout::tenants(&env.root)) {
        Ok(names) => (names, Vec::new()),
        Err(error) if is_own(&error) => {
            let place = Layout::tenants(&env.root).display().to_string();
            (Vec::new(), vec![Damaged::of(place, &error)])
        }
        Err(error) => return Err(error),
    };
    let has_strange = names.iter().any(|(name, kind)| is_strange::<TenantId>(name, *kind));
    let mut folders: Vec<TenantId> = names.iter().filter_map(|(name, _)| id_of(name)).collect();
    folders.push(TenantId::default());
    folders.sort();
    folders.dedup();
    for id in folders {
        let layout = Layout::new(&env.root, &id);
        // An unreadable folder counts as one with data. Its fault is reported by operations on that tenant, and does
        // not affect other tenants.
        let holds = (has_strange && id == TenantId::default())
            || env.kind(&layout.bindings()).map_or(true, |kind| kind.is_some())
            || env.kind(&layout.pointers()).map_or(true, |kind| kind.is_some())
            || env.list(&layout.workspaces()).map_or(true, |names| !names.is_empty())
            // What a deletion that was cut off has left belongs to a tenant, and an operator must be able to find it.
            || is_unfinished(env, layout.root()).unwrap_or(true);
        if holds && after.is_none_or(|after| id > *after) {
            found.push(id);
        }
    }
    Ok(Page::new(found).with_damaged(if after.is_none() { damaged } else { Vec::new() }))
}
