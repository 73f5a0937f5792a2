"""Makes the programs' input files: each function fills one folder, the same on every machine but for cxx's headers."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-300:]}")


# --------------------------------------------------------------------------
# cc1plus: standard headers and many small templates, preprocessed

CXX_HEAD = """#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>
"""

CXX_UNIT = """
template <int N> struct Shape{i} {{
  std::map<std::string, std::vector<std::tuple<int, double, std::string>>> rows;
  std::variant<int, std::string, std::vector<Shape{i}<N>>> value;
  int total() const {{
    int sum = N;
    for (const auto &[key, list] : rows)
      sum += std::accumulate(list.begin(), list.end(), int(key.size()),
                             [](int a, const auto &t) {{ return a + std::get<0>(t) * {i}; }});
    return sum;
  }}
}};
int use{i}(const std::string &text) {{
  Shape{i}<{i}> a; Shape{i}<{i} + 1> b;
  a.rows[text].emplace_back({i}, 1.5, text); b.rows["b"].emplace_back(2, 2.5, text);
  std::unordered_map<int, std::unique_ptr<Shape{i}<3>>> owned;
  owned[{i}] = std::make_unique<Shape{i}<3>>();
  std::set<std::pair<int, std::string>> seen{{{{a.total(), text}}, {{b.total(), "b"}}}};
  std::ostringstream out; out << a.total() << b.total() << owned.size() << seen.size();
  return int(out.str().size());
}}
"""


def cxx(work: Path) -> None:
    for name, units in (("full", 3), ("quick", 0)):
        source = work / f"{name}.cc"
        head = CXX_HEAD if units else "#include <map>\n#include <string>\nstd::map<int, std::string> m;\n"
        source.write_text(head + "".join(CXX_UNIT.format(i=i) for i in range(units)))
        # -P omits line marks, so the output contains no paths.
        _run("g++", "-std=c++17", "-E", "-P", str(source), "-o", str(work / f"{name}.ii"))


# --------------------------------------------------------------------------
# sqlite3: tables, indexes, joins, groups, text

SQL = """
pragma cache_size = -20000;
create table author(id integer primary key, name text, born int);
create table book(id integer primary key, author int, title text, price real, body blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
  insert into author select i, printf('author-%05d', i * 7919 % 5003), 1900 + i % 90 from n;
with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
  insert into book select i, i * 31 % 5000 + 1, printf('title %x of %d', i * 40503 % 65536, i % 97),
    (i * 17 % 1000) / 10.0, zeroblob(i % 300) from n;
create index book_author on book(author, price);
create index book_title on book(title);
analyze;
select count(*), sum(price), sum(length(body)) from book;
select a.name, count(*), round(avg(b.price), 3), max(b.title) from author a
  join book b on b.author = a.id group by a.id having count(*) > 2 order by 3 desc, 1 limit 40;
select substr(title, 1, 8) t, count(*) c, group_concat(id % 10, '') from (select * from book order by id)
  group by t order by c desc, t limit 20;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 40)
  select i, json_extract(json_group_array(json_object('t', title, 'p', price)), '$[3].t')
  from n join book on book.author = n.i * 100 group by i;
update book set title = title || upper(title) where id % 7 = 0;
delete from book where id % 11 = 0;
select count(*), sum(length(title)), min(title), max(title) from book;
select name, row_number() over (order by born, name) from author order by id limit 10;
vacuum;
pragma integrity_check;
"""


def sql(work: Path) -> None:
    generator = random.Random(5)
    letters = "etaoinshrdlu"
    for name, rows in (("full", 60000), ("quick", 8000)):
        lines = [SQL.format(rows=rows), "create table note(id integer primary key, text);", "begin;"]
        for i in range(rows // 4):  # statements that must be read and prepared one by one
            words = " ".join("".join(generator.choices(letters, k=5)) for _ in range(i % 9 + 1))
            lines.append(f"insert into note values({i}, '{words}');")
            if i % 5 == 0:
                lines.append(f"select text from note where id = {generator.randint(0, i)};")
        lines.append("commit;\n")
        (work / f"{name}.sql").write_text("\n".join(lines))


# --------------------------------------------------------------------------
# z3: equations over bit vectors and over the integers, each a problem of its own

def smt(work: Path) -> None:
    generator = random.Random(9)
    for name, problems in (("full", 12), ("quick", 1)):
        lines = ["(set-option :smt.random_seed 1)"]
        for problem in range(problems):
            lines.append("(push)")
            count = 14
            for i in range(count):
                lines += [f"(declare-const x{i} Int)", f"(assert (and (<= 0 x{i}) (<= x{i} 60)))"]
            known = [generator.randint(0, 60) for _ in range(count)]
            for _ in range(count - 2):
                chosen = generator.sample(range(count), 4)
                factors = [generator.choice((-5, -3, -2, 2, 3, 7)) for _ in chosen]
                total = sum(f * known[i] for f, i in zip(factors, chosen))
                terms = " ".join(f"(* {f} x{i})" for f, i in zip(factors, chosen))
                lines.append(f"(assert (= (+ {terms}) {total}))")
            for i in range(16):
                lines.append(f"(declare-const b{i} (_ BitVec 16))")
            for i in range(10):
                a, b, c = generator.sample(range(16), 3)
                lines.append(f"(assert (= (bvmul b{a} (bvadd b{b} #x{generator.randint(1, 65535):04x}))"
                             f" (bvxor b{c} #x{generator.randint(1, 65535):04x})))")
            lines += ["(check-sat)", "(pop)"]
        (work / f"{name}.smt2").write_text("\n".join(lines) + "\n")


# --------------------------------------------------------------------------
# ghostscript: pages of text, curves and dictionaries

POSTSCRIPT = """%!PS-Adobe-3.0
/seed 7 def
/rnd {{ seed 171 mul 30269 mod /seed exch def seed exch mod }} bind def
/box {{ /n exch def 0 1 n {{ pop
  newpath 560 rnd 20 add 760 rnd 20 add moveto
  600 rnd 800 rnd 600 rnd 800 rnd 600 rnd 800 rnd curveto
  100 rnd 100 div setgray 3 rnd 0.2 add setlinewidth
  seed 2 mod 0 eq {{ closepath fill }} {{ stroke }} ifelse }} for }} bind def
/words {{ /n exch def 0 1 n {{ /i exch def
  /x 500 rnd 20 add def /y 760 rnd 20 add def /size 6 rnd 6 add def
  30 dict begin
    0 1 20 {{ dup 8 string cvs cvn exch def }} for
    /text 40 string def i text cvs pop
    /Helvetica findfont size scalefont setfont
    x y moveto i 12 string cvs show ( of ) show text show
  end }} for }} bind def
/lists {{ /n exch def /all [] def 0 1 n {{ /i exch def
  /a i 97 mod 1 add array def 0 1 a length 1 sub {{ a exch dup 3 mul put }} for
  /all [ all length 50 gt {{ all 25 25 getinterval aload pop }} {{ all aload pop }} ifelse a ] def
  }} for }} bind def
1 1 {pages} {{ pop {curves} box 0 setgray {words} words {lists} lists showpage }} for
"""


def postscript(work: Path) -> None:
    for name, pages in (("full", 8), ("quick", 1)):
        text = POSTSCRIPT.format(pages=pages, curves=400, words=1500, lists=4000)
        (work / f"{name}.ps").write_text(text)


# --------------------------------------------------------------------------
# Programs of ours that have to be compiled

def rust(work: Path) -> None:
    _run("rustc", "--edition", "2021", "-O", "-o", str(work / "words"), str(HERE / "words.rs"))


def java(work: Path) -> None:
    _run("javac", "-d", str(work), str(HERE / "Work.java"))
