//! README: each thing that it shows is in the project.

use std::fs;
use std::path::Path;

use docs::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn readme_shows_the_quickstart_verbatim() {
    let program = read("examples/src/bin/quickstart.rs");
    // What comes before the first `use` is for the compiler.
    let shown = &program[program.find("\nuse ").unwrap() + 1..];
    assert!(
        read("README.md").contains(&format!("```rust\n{shown}```\n")),
        "the README shows another quickstart"
    );
}

/// The bridges' pages are not compiled here: these crates select features that others do not. Their programs are.
#[test]
fn pages_of_the_bridges_show_their_examples_verbatim() {
    for (page, program) in [
        ("hosted-models.md", "agent-rig/examples/hosted.rs"),
        ("tools-of-mcp-servers.md", "agent-mcp/examples/servers.rs"),
        ("in-an-editor.md", "agent-acp/examples/editor.rs"),
    ] {
        let program = read(program);
        let shown = &program[program.find("\nuse ").unwrap() + 1..];
        let page = read(&format!("docs/cookbook/{page}"));
        assert!(page.contains(&format!("```rust,ignore\n{shown}```\n")), "{page}");
        assert_eq!(page.matches("```rust").count(), 1);
    }
}

/// Where the pages are read, all of a snippet is seen: also what rustdoc would leave out.
#[test]
fn pages_hide_no_lines_of_snippets() {
    for folder in ["", "docs", "docs/cookbook", "docs/writing-a-backend"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            // Every second part is between fences.
            for snippet in text.split("```").skip(1).step_by(2).filter(|it| it.starts_with("rust")) {
                let hidden = snippet.lines().find(|line| line.trim() == "#" || line.trim().starts_with("# "));
                assert_eq!(hidden, None, "{}", path.display());
            }
        }
    }
}

/// What the README's table of stores says of lists is what the page on performance says. Its table of figures is made by the harness.
#[test]
fn lists_of_the_readme_take_what_the_page_says() {
    let (readme, page) = (read("README.md"), read("docs/performance.md"));
    let first_list = "| first list of a process, 10,000 sessions |";
    let row = page.lines().rfind(|line| line.starts_with(first_list)).unwrap();
    let time = row.split('|').nth(2).unwrap().trim().trim_matches('*');
    let lists = readme.lines().find(|line| line.starts_with("| Lists of 10,000 sessions |")).unwrap();
    assert!(lists.contains(time), "{lists}: not {time}");
}

#[test]
fn readme_lists_every_crate() {
    let readme = read("README.md");
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("agent-") {
            assert!(readme.contains(&format!("[`{name}`]({name})")), "the README does not list {name}");
        }
    }
}

#[test]
fn links_between_the_pages_resolve() {
    let mut pages: Vec<_> =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|page| root().join(page)).into();
    for folder in ["docs", "docs/decisions"] {
        let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|file| file.extension().is_some_and(|extension| extension == "md")));
    }
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if !link.starts_with("http") && !path.is_empty() {
                let to = page.parent().unwrap_or(Path::new("")).join(path);
                assert!(to.exists(), "{} links to {link}, which is not there", page.display());
            }
        }
    }
}
