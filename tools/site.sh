#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make a site of static pages from the manual pages: one page for each, an index, a style sheet; no scripts.
#
#   site.sh FOLDER        in the root folder of the source; needs mandoc
set -eu
to=$1
command -v mandoc >/dev/null 2>&1 || {
    echo "site.sh: needs mandoc (Debian: mandoc)" >&2
    exit 1
}
mkdir -p "$to"

cat >"$to/style.css" <<'END'
:root { color-scheme: light dark; --fg: #1b1f24; --bg: #ffffff; --dim: #57606a; --line: #d0d7de; --box: #f6f8fa; --link: #0a5bb5; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #dde3ea; --bg: #14181d; --dim: #98a3ae; --line: #333b44; --box: #1c2229; --link: #79b4f5; }
}
body { color: var(--fg); background: var(--bg); font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 1rem auto; padding: 0 1rem; }
a { color: var(--link); }
nav { border-bottom: 1px solid var(--line); padding-bottom: .4rem; margin-bottom: 1rem; }
h1 { font-size: 1.3rem; margin: 1.6rem 0 .4rem; }
h2 { font-size: 1.08rem; margin: 1.2rem 0 .3rem; }
h1 a.permalink, h2 a.permalink, a.permalink { color: inherit; text-decoration: none; }
code, pre { font-family: ui-monospace, monospace; font-size: .92em; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; overflow-x: auto; }
dt { margin-top: .5rem; }
dd { margin-left: 1.5rem; }
table.head, table.foot { width: 100%; color: var(--dim); font-size: .9em; }
td.head-vol, td.foot-date { text-align: center; }
td.head-rtitle, td.foot-os { text-align: right; }
table.Nm td { vertical-align: top; }
table.Nm td:first-child { padding-right: .6rem; white-space: nowrap; }
.Bd-indent, .Bl-tag { margin-left: 1rem; }
a:focus-visible { outline: 2px solid var(--link); }
@media print { nav { display: none; } }
END

# page_of FILE: print the page's name and section
page_of() {
    base=${1##*/}
    echo "${base%.*} ${base##*.}"
}

for page in man/*.[0-9]; do
    name=$(page_of "$page")
    out=$to/${name% *}.${name#* }.html
    mandoc -T html -O "style=style.css,man=%N.%S.html" "$page" >"$out.part"
    # remove the links to pages of other programs, because the site does not have them
    sed -n 's/.*href="\([^"#:]*\.[0-9]\)\.html".*/\1/p' "$out.part" | sort -u >"$out.links"
    while read -r link; do
        [ -e "man/$link" ] || printf 's|<a class="Xr" href="%s.html"\\([^>]*\\)>\\([^<]*\\)</a>|\\2|g\n' "$link"
    done <"$out.links" >"$out.sed"
    # link a section that only ckpt(1) has to the page of ckpt(1)
    for id in $(sed -n 's/.*href="#\([^"]*\)".*/\1/p' "$out.part" | sort -u); do
        grep -q "id=\"$id\"" "$out.part" || echo "s|href=\"#$id\"|href=\"ckpt.1.html#$id\"|g" >>"$out.sed"
    done
    sed -f "$out.sed" "$out.part" | sed 's|^<body>$|<body>\n<nav><a href="index.html">All pages</a></nav>|; s|<html>|<html lang="en">|' >"$out"
    rm -f "$out.part" "$out.links" "$out.sed"
done

# list TITLE PAGE...: print a list of pages with their one-line descriptions
list() {
    echo "<h1>$1</h1>"
    echo "<ul>"
    shift
    for page in "$@"; do
        [ -e "$page" ] || continue
        name=$(page_of "$page")
        about=$(sed -n 's/^\.Nd //p' "$page" | sed 's/&/\&amp;/g; s/</\&lt;/g' | head -n 1)
        echo "<li><a href=\"${name% *}.${name#* }.html\">${name% *}(${name#* })</a>: $about</li>"
    done
    echo "</ul>"
}

{
    cat <<'END'
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1.0">
<link rel="stylesheet" href="style.css">
<title>ckpt: checkpoints of large models</title>
</head>
<body>
END
    list "Tutorials" man/ckpt-tutorial-*.7
    list "Commands" man/*.1
    list "Libraries" man/*.3
    list "Formats" man/*.5
    set --
    for page in man/*.7; do
        case $page in
        *-tutorial-*) ;;
        *) set -- "$@" "$page" ;;
        esac
    done
    list "Background" "$@"
    echo "</body>"
    echo "</html>"
} >"$to/index.html"
