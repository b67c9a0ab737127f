// Ask for a context: go run ask.go OWNER INPUT, with the bus in REDIS_URL. Nothing to install.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		return nil, err
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

// ask returns the response to a request of so many seconds, as JSON.
func (b *bus) ask(owner, input string, seconds int) (string, error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	id := "msg_" + hex.EncodeToString(random)
	replyTo := "context.reply." + id
	request, err := json.Marshal(map[string]any{
		"id": id, "owner_key": owner, "content": map[string]any{"current_input": input},
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
	answer, err := b.command("BLPOP", replyTo, strconv.Itoa(seconds))
	if err == nil && answer == nil {
		err = fmt.Errorf("no answer to %s in %d s", id, seconds)
	}
	if err != nil {
		return "", err
	}
	return answer[1], nil
}

func main() {
	var answer string
	opened, err := open(os.Getenv("REDIS_URL"))
	if err == nil {
		answer, err = opened.ask(os.Args[1], os.Args[2], 15)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(answer)
}
