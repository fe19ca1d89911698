//! Attributes: title, labels, metadata, references, resources, mounts, handles.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::base::{RawFields, RawJson, Result};
use crate::model::{
    Attributes, ExternalHandle, INACTIVE_AFTER_LABEL, MountSet, Mounts, MountsPatch, Patch, Resource, Title,
};
use crate::sealing::word::Words;

/// Beginning of the mark of a label's key, and of its value.
const MARK: &str = "~";
/// Beginning of the name of the metadata that has a label's text. What a host writes begins otherwise once it is sealed.
const TEXT: &str = "~l";

/// Returns whether a label is the library's own and stays readable, since stores look at it.
fn stays(key: &str) -> bool {
    key == INACTIVE_AFTER_LABEL
}

/// Returns whether the fold looks at the name of a reference.
fn is_known_reference(name: &str) -> bool {
    name == Attributes::PROVIDER || name == Attributes::PROVIDER_FROM
}

/// Returns the mark of a label's key or value.
fn mark(label: impl Fn(&str, Option<&str>) -> String, key: &str, value: Option<&str>) -> String {
    format!("{MARK}{}", label(key, value))
}

/// Returns a label as an encrypted store has it, for lists to compare.
pub(crate) fn marked_label(
    label: impl Fn(&str, Option<&str>) -> String,
    key: String,
    value: String,
) -> (String, String) {
    match stays(&key) {
        true => (key, value),
        false => (mark(&label, &key, None), mark(&label, &key, Some(&value))),
    }
}

impl Words<'_> {
    /// Seals or opens attributes.
    pub(super) fn attributes(&self, of: &mut Attributes) -> Result<()> {
        if self.opens {
            let texts = take_texts(&mut of.metadata);
            self.fields("metadata", &mut of.metadata)?;
            of.labels = self.open_labels(&of.labels, texts)?;
        } else {
            self.fields("metadata", &mut of.metadata)?;
            let labels: BTreeMap<_, _> =
                mem::take(&mut of.labels).into_iter().map(|(key, value)| (key, Some(value))).collect();
            let sealed = self.seal_labels(labels, &mut of.metadata)?;
            of.labels = sealed.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        }
        self.title(of.title.as_mut())?;
        self.map("reference", is_known_reference, &mut of.references, |value| self.word("reference", value))?;
        self.resources(&mut of.resources)?;
        self.map("handle", |_| false, &mut of.handles, |handle| self.handle(handle))?;
        self.mounts(&mut of.mounts)
    }

    /// Seals a patch such that what it makes of sealed attributes is what it makes of the attributes, sealed.
    pub(super) fn patch(&self, of: &mut Patch) -> Result<()> {
        self.fields("metadata", &mut of.metadata)?;
        of.labels = self.seal_labels(mem::take(&mut of.labels), &mut of.metadata)?;
        self.title(of.title.as_mut().and_then(Option::as_mut))?;
        self.map("reference", is_known_reference, &mut of.references, |value| {
            self.optional("reference", value)
        })?;
        self.resources(of.resources.as_deref_mut().unwrap_or_default())?;
        self.map(
            "handle",
            |_| false,
            &mut of.handles,
            |handle| handle.as_mut().map_or(Ok(()), |handle| self.handle(handle)),
        )?;
        self.mounts_patch(&mut of.mounts)
    }

    /// Returns the labels as marks, which lists compare, and adds their texts to the metadata. A label without value is removed.
    fn seal_labels(
        &self,
        labels: BTreeMap<String, Option<String>>,
        metadata: &mut RawFields,
    ) -> Result<BTreeMap<String, Option<String>>> {
        let label = |key: &str, value: Option<&str>| self.sealing.label(key, value);
        let mut sealed = BTreeMap::new();
        for (key, value) in labels {
            if stays(&key) {
                sealed.insert(key, value);
                continue;
            }
            let marked = mark(label, &key, None);
            let name = format!("{TEXT}{marked}");
            match value {
                Some(value) => {
                    let mut text = RawJson::sure(&(&key, &value)).get().to_owned();
                    self.word("label", &mut text)?;
                    metadata.insert(name, RawJson::sure(&text));
                    sealed.insert(marked, Some(mark(label, &key, Some(&value))));
                }
                None => {
                    metadata.insert(name, RawJson::constant("null"));
                    sealed.insert(marked, None);
                }
            }
        }
        Ok(sealed)
    }

    fn open_labels(
        &self,
        marks: &BTreeMap<String, String>,
        mut texts: BTreeMap<String, RawJson>,
    ) -> Result<BTreeMap<String, String>> {
        let label = |key: &str, value: Option<&str>| self.sealing.label(key, value);
        let mut labels = BTreeMap::new();
        for (marked, value_mark) in marks {
            if stays(marked) {
                labels.insert(marked.clone(), value_mark.clone());
                continue;
            }
            let wrong = || self.corrupt("the mark of a label and its text differ");
            let raw = texts.remove(marked).ok_or_else(wrong)?;
            let mut text: String = raw.to().map_err(|source| wrong().with_source(source))?;
            self.word("label", &mut text)?;
            let (key, value): (String, String) =
                serde_json::from_str(&text).map_err(|source| wrong().with_source(source))?;
            if *marked != mark(label, &key, None) || *value_mark != mark(label, &key, Some(&value)) {
                return Err(wrong());
            }
            labels.insert(key, value);
        }
        match texts.is_empty() {
            true => Ok(labels),
            false => Err(self.corrupt("the text of a label has no mark")),
        }
    }

    fn title(&self, title: Option<&mut Title>) -> Result<()> {
        title.map_or(Ok(()), |title| self.word("title", &mut title.text))
    }

    fn resources(&self, resources: &mut [Resource]) -> Result<()> {
        for Resource { kind, source, mount, access: _ } in resources {
            self.word("resource kind", kind)?;
            self.word("resource source", source)?;
            self.word("resource mount", mount)?;
        }
        Ok(())
    }

    fn handle(&self, handle: &mut ExternalHandle) -> Result<()> {
        let ExternalHandle { kind, target, note, process } = handle;
        self.word("handle kind", kind)?;
        self.word("handle target", target)?;
        self.word("handle note", note)?;
        self.optional("handle process", process)
    }

    fn mounts(&self, mounts: &mut Mounts) -> Result<()> {
        let Mounts { pinned, removed, frozen } = mounts;
        self.map("mount", |_| false, pinned, |_| Ok(()))?;
        let names = mem::take(removed).into_iter();
        *removed = names
            .map(|mut name| self.word("mount name", &mut name).map(|()| name))
            .collect::<Result<BTreeSet<_>>>()?;
        self.mount_set(frozen.as_mut())
    }

    fn mounts_patch(&self, mounts: &mut MountsPatch) -> Result<()> {
        let MountsPatch { pinned, removed, frozen } = mounts;
        self.map("mount", |_| false, pinned, |_| Ok(()))?;
        self.map("mount", |_| false, removed, |_| Ok(()))?;
        self.mount_set(frozen.as_mut().and_then(Option::as_mut))
    }

    fn mount_set(&self, set: Option<&mut MountSet>) -> Result<()> {
        set.map_or(Ok(()), |set| self.map("mount", |_| false, set.names_mut(), |_| Ok(())))
    }
}

/// Takes the texts of labels out of the metadata, by the marks of their keys.
fn take_texts(metadata: &mut RawFields) -> BTreeMap<String, RawJson> {
    let (mut texts, mut rest) = (BTreeMap::new(), RawFields::new());
    for (name, value) in metadata.iter() {
        match name.strip_prefix(TEXT) {
            Some(marked) => drop(texts.insert(marked.to_owned(), value.clone())),
            None => rest.push(name, value.clone()),
        }
    }
    *metadata = rest;
    texts
}
