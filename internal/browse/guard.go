package browse

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
)

// guard decides which requests are answered. It holds no sessions: a cookie proves itself.
type guard struct {
	host   string
	token  [sha256.Size]byte
	key    []byte
	cookie string
}

// csrfField is the name of the form value that proves that a form was made by this page.
const csrfField = "csrf"

func newGuard(host, token string) guard {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	// Cookies do not know ports: the name keeps two servers of one machine apart.
	_, port, _ := net.SplitHostPort(host)
	// A browser leaves the usual port out of Host and Origin.
	host = strings.TrimSuffix(host, ":80")
	return guard{host: host, token: sha256.Sum256([]byte(token)), key: key, cookie: "evalbox-" + port}
}

// sign returns a value that only this server can make, for a purpose.
func (g guard) sign(purpose, value string) string {
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte(purpose + "\x00" + value))
	return hex.EncodeToString(mac.Sum(nil))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// session returns the session that a request belongs to; empty for none.
func (g guard) session(r *http.Request) string {
	c, err := r.Cookie(g.cookie)
	if err != nil {
		return ""
	}
	id, proof, _ := strings.Cut(c.Value, ".")
	if !same(proof, g.sign("session", id)) {
		return ""
	}
	return id
}

// csrf returns the form value of the session of a request.
func (g guard) csrf(r *http.Request) string { return g.sign("csrf", g.session(r)) }

// policyText is the content security policy of every page. Scripts and styles are files of this
// server, and nothing is inline.
const policyText = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect lets only requests through that come from the user's browser: with our address as their
// host, from no other site, and with the cookie that the token of the URL is exchanged for.
func (g guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policyText)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		switch from := r.Header.Get("Sec-Fetch-Site"); {
		case r.Host != g.host:
			refuse(w, http.StatusMisdirectedRequest, "The address of this page is http://"+g.host+". It answers to no other name.")
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
			h.Set("Allow", "GET, HEAD, POST")
			refuse(w, http.StatusMethodNotAllowed, "This method is not known here.")
		case from != "" && from != "same-origin" && from != "none":
			refuse(w, http.StatusForbidden, "Another site sent you here. Open the URL that `sandbox browse` printed.")
		case r.Method != http.MethodPost && r.URL.Path == "/" && r.URL.Query().Has("token"):
			g.enter(w, r)
		case g.session(r) == "":
			refuse(w, http.StatusUnauthorized, "Open the URL that `sandbox browse` printed: it has the token of this page.")
		case r.Method == http.MethodPost && !g.isOurs(r):
			refuse(w, http.StatusForbidden, "This form is not one of this page, or is too old. Reload the page, and try again.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// enter exchanges the token for a cookie, and takes it out of the URL.
func (g guard) enter(w http.ResponseWriter, r *http.Request) {
	have := sha256.Sum256([]byte(r.URL.Query().Get("token")))
	if subtle.ConstantTimeCompare(have[:], g.token[:]) != 1 {
		refuse(w, http.StatusUnauthorized, "The token is not the one of this server. Open the URL that `sandbox browse` printed last.")
		return
	}
	id := rand.Text()
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // HTTP on loopback: a Secure cookie would not come back
		Name: g.cookie, Value: id + "." + g.sign("session", id), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// isOurs reports whether a request that changes something comes from a form of this session. A
// browser says where from; a page without a referrer has the origin "null".
func (g guard) isOurs(r *http.Request) bool {
	origin, from := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	if origin != "http://"+g.host && (from != "same-origin" || origin != "" && origin != "null") {
		return false
	}
	return same(r.PostFormValue(csrfField), g.csrf(r))
}

// refuse answers with a sentence.
func refuse(w http.ResponseWriter, code int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(sentence + "\n"))
}
