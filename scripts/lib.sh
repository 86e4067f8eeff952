# What scripts/run and scripts/test share; sourced, not run. Bash.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)

# The compiler's cache serves every checkout alike: paths below the root count as relative.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

build_packages=(
    build-essential cmake ninja-build ccache pkg-config git
    libboost1.81-dev libboost-json1.81-dev libboost-filesystem1.81-dev
    libtomlplusplus-dev prometheus-cpp-dev libpcre2-dev libssl-dev libcli11-dev
    xz-utils
)
run_packages=(python3 python3-jinja2 ca-certificates curl)
test_packages=(libgtest-dev libgmock-dev openssl)
client_packages=(python3-websockets chromium)

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# stage NAME COMMAND...: runs it and prints how long it took; the caller sees its exit status.
stage() {
    local name=$1 begin=$SECONDS status=0
    shift
    say "== $name"
    "$@" || status=$?
    say "== $name: $((SECONDS - begin)) s$([[ $status == 0 ]] || echo ", exit status $status")"
    stage_times+=("$(printf '%-28s %5d s' "$name" $((SECONDS - begin)))")
    return "$status"
}
stage_times=()
print_stage_times() { ((${#stage_times[@]} == 0)) || printf '   %s\n' "${stage_times[@]}"; }

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null) == installed ]]; }

# as_root COMMAND...: directly as root, through sudo otherwise.
as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"
    elif command -v sudo > /dev/null; then sudo "$@"
    else fail "needs root or sudo for: $*"
    fi
}

# install_packages PACKAGE...: those that are missing. Asks only dpkg when none is.
install_packages() {
    local package missing=()
    if ! command -v dpkg-query > /dev/null; then
        say "not a Debian system: these must be there under the names they have here: $*"
        return
    fi
    for package in "$@"; do is_installed "$package" || missing+=("$package"); done
    ((${#missing[@]} > 0)) || return 0
    say "installing: ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}

# configure PRESET [CMAKE ARGUMENT...]: quiet when nothing is wrong.
configure() {
    local preset=$1 log
    shift
    log=$(mktemp)
    if ! (cd "$root" && cmake --preset "$preset" "$@") > "$log" 2>&1; then
        cat "$log"
        rm -f "$log"
        return 1
    fi
    grep -E '^-- (assay|ENABLE_|  )' "$log" || true
    rm -f "$log"
}

# build PRESET [TARGET...]: everything when no target is named. Progress is for terminals.
build() {
    local preset=$1 quiet=()
    shift
    [[ -t 1 ]] || quiet=(-- --quiet)
    (cd "$root" && cmake --build --preset "$preset" --parallel "$jobs" \
        ${1:+--target "$@"} ${quiet[@]+"${quiet[@]}"})
}

# is_node PROGRAM: whether it is Node.js 20 or newer.
is_node() {
    local version
    version=$("$1" --version 2> /dev/null) || return 1
    [[ $version =~ ^v([0-9]+)\. ]] && ((BASH_REMATCH[1] >= 20))
}

# find_node: sets `node`, the program that runs the client tests. The system's when it is new enough;
# otherwise npm's package `node`, fetched once into .cache/.
find_node() {
    local cached=$root/.cache/node/node_modules/.bin/node
    if command -v npm > /dev/null && is_node node; then
        node=$(command -v node)
        return
    fi
    if ! is_node "$cached"; then
        command -v npm > /dev/null || install_packages nodejs npm
        mkdir -p "$root/.cache/node"
        say "fetching Node 22"
        npm install --loglevel=error --no-audit --no-fund --prefix "$root/.cache/node" node@22
        is_node "$cached" || fail "no Node.js 20 or newer, and npm's package node did not give one"
    fi
    node=$cached
}

# install_clients: the public client libraries of tests/clients, as its lock file pins them.
install_clients() {
    local clients=$root/tests/clients
    find_node
    [[ $clients/node_modules/.package-lock.json -nt $clients/package-lock.json ]] && return
    (cd "$clients" && npm ci --loglevel=error --no-audit --no-fund && touch node_modules/.package-lock.json)
}
