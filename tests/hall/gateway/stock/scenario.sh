#!/bin/sh
# scenario.sh http://127.0.0.1:7700: the REST part of what every deployment of the hall must do, by curl alone.
# It needs `registration: open`. Prints one line for each step; ends with 1 when one does not hold.
set -u
base=${1:?usage: scenario.sh BASE_URL}
answer=$(mktemp) wrong=0
trap 'rm -f "$answer"' EXIT

# expect STEP STATUS PATTERN METHOD PATH [curl options]
expect() {
    step=$1 status=$2 pattern=$3 method=$4 path=$5
    shift 5
    got=$(curl -sS -m 30 -o "$answer" -w '%{http_code}' -X "$method" "$@" "$base$path")
    if [ "$got" = "$status" ] && grep -q "$pattern" "$answer"; then
        echo "ok    $step"
    else
        echo "WRONG $step: $got instead of $status: $(cat "$answer")"
        wrong=1
    fi
}
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$answer"; }
fresh() { printf '%s-%s@example.org' "$(cat /proc/sys/kernel/random/uuid)" "$$"; }

one=$(fresh) two=$(fresh) secret='"password":"long enough"'
expect 'health' 200 '"status":"ok"' GET /health
expect 'register' 201 "$one" POST /auth/register -d "{\"email\":\"$one\",$secret}"
expect 'register twice' 409 'Email already registered' POST /auth/register -d "{\"email\":\"$one\",$secret}"
expect 'register another' 201 "$two" POST /auth/register -d "{\"email\":\"$two\",$secret}"
expect 'wrong password' 401 'Invalid credentials' POST /auth/login -d "{\"email\":\"$one\",\"password\":\"wrong one\"}"
expect 'login' 200 accessToken POST /auth/login -d "{\"email\":\"$one\",$secret}"
mine="Authorization: Bearer $(field accessToken)"
expect 'login of another' 200 accessToken POST /auth/login -d "{\"email\":\"$two\",$secret}"
theirs="Authorization: Bearer $(field accessToken)"
expect 'no token' 401 Unauthorized GET /rooms
expect 'bad token' 401 Unauthorized GET /rooms -H 'Authorization: Bearer bad'
expect 'create a room' 201 '"lastMessageId":null' POST /rooms -H "$mine" -d '{"name":"scenario"}'
room=$(field id)
expect 'one member' 200 '^\[{[^{]*}\]$' GET "/rooms/$room/members" -H "$mine"
expect 'join without a body' 201 "$room" POST "/rooms/$room/join" -H "$theirs"
expect 'one room' 200 '^\[{[^{]*}\]$' GET /rooms -H "$theirs"
expect 'no messages' 200 '^\[\]$' GET "/rooms/$room/messages" -H "$theirs"
expect 'read' 201 '^{"success":true}$' POST "/rooms/$room/read" -H "$theirs" \
    -d '{"lastReadMessageId":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}'
exit "$wrong"
