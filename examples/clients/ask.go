// Ask for a context: go run ask.go OWNER INPUT [-history FILE] [-tools FILE] [-max-tokens N]
// [-explain] [-recall-tool] [-recall], with the bus in REDIS_URL or CTXB_BUS__URL, or of a worker in this folder. Nothing to
// install.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

type bus struct {
	conn   net.Conn
	reader *bufio.Reader
}

// open connects, and says who it is where the address has a password.
func open(address string) (*bus, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	port := at.Port()
	if port == "" {
		port = "6379"
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("%w: start `ctxb worker` here, or correct REDIS_URL", err)
	}
	opened := &bus{conn, bufio.NewReader(conn)}
	if password, ok := at.User.Password(); ok {
		user := at.User.Username()
		if user == "" {
			user = "default"
		}
		_, err = opened.command("AUTH", user, password)
	}
	return opened, err
}

// command sends words and returns the strings of the reply; none where it is null.
func (b *bus) command(words ...string) ([]string, error) {
	var sent strings.Builder
	fmt.Fprintf(&sent, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&sent, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(b.conn, sent.String()); err != nil {
		return nil, err
	}
	return b.read()
}

func (b *bus) read() ([]string, error) {
	line, err := b.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	if kind == '-' {
		return nil, errors.New(rest)
	}
	if kind == '+' || kind == ':' {
		return []string{rest}, nil
	}
	count, err := strconv.Atoi(rest)
	if err != nil || count < 0 {
		return nil, err
	}
	if kind == '$' {
		text := make([]byte, count+2)
		_, err = io.ReadFull(b.reader, text)
		return []string{string(text[:count])}, err
	}
	var all []string
	for len(all) < count {
		one, err := b.read()
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

// ask returns the response to a request, within a number of seconds, as JSON.
func (b *bus) ask(owner string, content map[string]any, seconds int) (string, error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	id := "msg_" + hex.EncodeToString(random)
	replyTo := "context.reply." + id
	request, err := json.Marshal(map[string]any{
		"id": id, "owner_key": owner, "content": content,
		"metadata": map[string]any{
			"reply_to": replyTo, "reply_kind": "list", "timeout_ms": seconds * 1000,
		},
	})
	if err != nil {
		return "", err
	}
	if _, err = b.command("XADD", "context.build.request", "*", "data", string(request)); err != nil {
		return "", err
	}
	answer, err := b.command("BLPOP", replyTo, strconv.Itoa(seconds+1)) // one that expires is answered, too
	if err == nil && answer == nil {
		err = fmt.Errorf("no answer in %d s: is a worker running?", seconds)
	}
	if err != nil {
		return "", err
	}
	return answer[1], nil
}

// address returns where the bus is.
func address() (string, error) {
	for _, name := range []string{"REDIS_URL", "CTXB_BUS__URL"} {
		if url := os.Getenv(name); url != "" {
			return url, nil
		}
	}
	kept, err := os.ReadFile(".ctxb/bus.url")
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("no worker in this folder (.ctxb/bus.url is missing): " +
			"start `ctxb worker` here, or set REDIS_URL")
	}
	return strings.TrimSpace(string(kept)), err
}

// content returns what is asked for: the input, and what the options add to it.
func content(input string, options []string) (map[string]any, error) {
	set := flag.NewFlagSet("ask", flag.ExitOnError)
	history := set.String("history", "", "a `file` with the messages before the input, in JSON")
	tools := set.String("tools", "", "a `file` with tools in OpenAI's form")
	explain := set.Bool("explain", false, "the reason for each message")
	tool := set.Bool("recall-tool", false, "offer the tool recall")
	recall := set.Bool("recall", false, "INPUT is what a model gave that tool: fetch messages")
	context := map[string]any{}
	set.Func("max-tokens", "the whole window, in tokens", func(text string) error {
		tokens, err := strconv.ParseUint(text, 10, 31)
		if err != nil || tokens == 0 {
			return errors.New("--max-tokens must be a whole number above 0")
		}
		context["max_tokens"] = tokens
		return nil
	})
	if err := set.Parse(options); err != nil {
		return nil, err
	}
	if *recall {
		var given map[string]any
		return given, json.Unmarshal([]byte(input), &given)
	}
	context["explain"], context["recall_tool"] = *explain, *tool
	content := map[string]any{"current_input": input, "context": context}
	if err := addFile(context, "past", *history); err != nil {
		return nil, err
	}
	return content, addFile(content, "tools", *tools)
}

// addFile sets a key to the JSON in a file, if one is named.
func addFile(object map[string]any, key, name string) error {
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	object[key] = json.RawMessage(text)
	return err
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ask.go OWNER INPUT "+
			"[-history FILE] [-tools FILE] [-max-tokens N] [-explain] [-recall-tool] [-recall]")
		os.Exit(2)
	}
	var answer string
	var opened *bus
	var at string
	asked, err := content(os.Args[2], os.Args[3:])
	if err == nil {
		at, err = address()
	}
	if err == nil {
		opened, err = open(at)
	}
	if err == nil {
		answer, err = opened.ask(os.Args[1], asked, 15)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(answer)
	var response struct{ Content struct{ Status string } }
	if json.Unmarshal([]byte(answer), &response) != nil || response.Content.Status == "error" {
		os.Exit(1)
	}
}
