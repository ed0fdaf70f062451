# Installs what is missing from deploy/packages.txt. Sourced; needs bash and nothing else.

# as_root COMMAND...: runs it as root, through sudo where we are not root.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "Not root and no sudo: cannot run: $*" >&2
    return 1
  fi
}

# missing_packages LIST_FILE GROUP...: prints the packages of these groups that are not installed.
missing_packages() {
  local list=$1 wanted=() name group
  shift
  while read -r name group; do
    [[ " $* " == *" $group "* ]] && wanted+=("$name")
  done < <(grep -v '^#' "$list")
  # ${db:Status-Abbrev} of an installed package is "ii "; unknown names are reported on stderr only.
  local installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Abbrev}\n' "${wanted[@]}" 2>/dev/null |
    awk '$2 == "ii" {print $1}')
  printf '%s\n' "${wanted[@]}" | sort -u | grep -vxF -f <(printf '%s\n' "$installed") || true
}

# ensure_packages LIST_FILE GROUP...: installs what is missing; a second call takes milliseconds.
ensure_packages() {
  local missing
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return 0
  echo "Installing packages: $(tr '\n' ' ' <<<"$missing")"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600)
  as_root "${apt[@]}" update >/dev/null &&
    # shellcheck disable=SC2086  # one word per package
    as_root "${apt[@]}" -o Dpkg::Use-Pty=0 install --no-install-recommends $missing >/dev/null || {
    echo "apt-get could not install: $(tr '\n' ' ' <<<"$missing")" >&2
    return 1
  }
}
